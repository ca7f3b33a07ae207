"""How the house may grow: chains of imports, pairs of folders, full folders, names said twice.

What is not mended yet stands in a table that may only shrink: each test prints what there is
now, and whoever mends something lowers the table.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from test_floors import FILES, MODULES, SRC, imports_of, parsed

FRONT = "unhang"
"""`unhang` itself names what is public, and imports that when asked: it is nobody's next floor."""
LONGEST_CHAIN = 24
DOZEN = 12

PAIRS = {
    ("unhang.record", "unhang.record.calls"),
    ("unhang.record", "unhang.record.contact"),
    ("unhang.record", "unhang.record.dumps"),
    ("unhang.record.calls", "unhang.record.contact"),
    ("unhang.record.calls", "unhang.record.dumps"),
    ("unhang.record.contact", "unhang.record.dumps"),
}
"""Folders that import each other."""

CATALOGUES = {"analysis/rules"}
"""Folders of one file an entry: their list is read, not the folder."""

FULL = {
    ".": 33,
    "logs": 13,
    "run/watching": 13,
}
"""Folders of more than a dozen modules, with how many they have."""

TUNED = {
    "activity/thresholds.py": 24,
    "run/guard.py": 1,
    "run/watching/jobtree.py": 1,
    "run/watching/memory.py": 1,
    "run/watching/outside.py": 2,
    "run/watching/pacing.py": 2,
    "run/docket.py": 1,
    "run/others.py": 1,
    "run/patrol.py": 2,
    "run/sleeping.py": 2,
    "run/watching/roster.py": 1,
}
"""Numbers that say whether a job moves and when it is looked at, by the file that states them."""

_BESIDE_JOBS = tuple(
    f"run/{name}.py" for name in ("docket", "guard", "others", "patrol", "sleeping", "starters")
)

OF_THE_KERNEL = {
    "activity/peers.py",
    "run/watching/outputs.py",
    "run/watching/procs.py",
    "run/watching/traffic.py",
}
"""Whose numbers are those of Linux's interfaces: layouts, requests, flags, descriptors."""

TWICE = {
    "calls": 2, "collectives": 2, "columns": 2, "completion": 2,
    "gpu": 2, "judging": 3, "loading": 2, "logs": 3, "machine": 2,
    "main": 2, "naming": 2, "nodes": 2, "outside": 2, "programs": 2,
    "query": 2, "ranks": 4, "ras": 3, "ray": 3, "reading": 5, "recorders": 2, "reports": 2,
    "sitecustomize": 2, "sites": 2, "stacks": 2, "streams": 2,
    "telling": 2,
}  # fmt: skip
"""Module names that stand in more than one folder, with how many."""


def followed(path: Path) -> frozenset[str]:
    """What Python imports for a file, also late; not what only a type checker reads."""
    found: set[str] = set()
    todo: list[ast.AST] = [parsed(path)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in MODULES else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        todo += ast.iter_child_nodes(node)
    return frozenset(found & set(MODULES) - {FRONT})


def longest_chain(arrows: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """The longest way from a module to one that imports nothing of ours."""

    @cache
    def below(name: str) -> tuple[str, ...]:
        return name, *max(
            (below(each) for each in sorted(arrows[name] - {name})), key=len, default=()
        )

    return max(map(below, sorted(arrows)), key=len)


def folder_of(name: str) -> str:
    """The folder in which a module lies: "unhang.run" of "unhang.run.session"."""
    return name if MODULES[name].stem == "__init__" else name.rpartition(".")[0]


def pairs_of_folders() -> set[tuple[str, str]]:
    """Folders that import each other; the front floor's files are single modules, in no folder."""
    arrows = {
        (folder_of(name), folder_of(target))
        for name, path in MODULES.items()
        for target in imports_of(path) & set(MODULES)
    }
    return {(a, b) for a, b in arrows if a < b and (b, a) in arrows and FRONT not in (a, b)}


def test_no_chain_of_imports_is_too_long() -> None:
    """Each link is something to know before the first module is understood."""
    chain = longest_chain({name: followed(path) for name, path in MODULES.items() if name != FRONT})
    print(len(chain), *chain, sep="\n")
    assert len(chain) <= LONGEST_CHAIN


def test_the_longest_chain_is_found() -> None:
    """Of two ways, the longer."""
    arrows = {"a": {"b", "c"}, "b": {"c"}, "c": set(), "d": {"c"}}
    assert longest_chain({k: frozenset(v) for k, v in arrows.items()}) == ("a", "b", "c")


def test_what_only_types_need_is_no_link(tmp_path: Path) -> None:
    """But what a function imports is one."""
    path = tmp_path / "new.py"
    path.write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from unhang.case import Case\n"
        "def f():\n    from unhang import model\n"
    )
    assert followed(path) == {"unhang.model"}


def test_folders_import_each_other_nowhere_else() -> None:
    """Of two folders one is below the other."""
    found = pairs_of_folders()
    print(*sorted(found), sep="\n")
    assert found <= PAIRS


def test_no_folder_fills_up() -> None:
    """A dozen files can be seen at once."""
    counts = Counter(path.parent for path in FILES if path.stem != "__init__")
    found = {str(folder.relative_to(SRC)): n for folder, n in counts.items() if n > DOZEN}
    found = {name: n for name, n in found.items() if name not in CATALOGUES}
    print(*sorted(found.items(), key=lambda item: -item[1]), sep="\n")
    assert_only_falls(found, FULL)


def test_module_names_are_said_once() -> None:
    """Whoever reads a name in a traceback knows whose it is."""
    homes = defaultdict(list)
    for path in FILES:
        if path.stem != "__init__":
            homes[path.stem].append(str(path.relative_to(SRC)))
    print(*(f"{name}: {where}" for name, where in homes.items() if len(where) > 1), sep="\n")
    assert_only_falls({name: len(where) for name, where in homes.items() if len(where) > 1}, TWICE)


def stated(value: ast.expr) -> int:
    """How many numbers an expression states; none where it derives them from others."""
    inner = list(ast.walk(value))
    if any(isinstance(each, ast.Name | ast.Call | ast.Dict | ast.Set) for each in inner):
        return 0
    values = value.elts if isinstance(value, ast.Tuple) else [value]
    numbers = [
        any(isinstance(n, ast.Constant) and type(n.value) in (int, float) for n in ast.walk(each))
        for each in values
    ]
    return sum(numbers)


def tuned_in(tree: ast.Module) -> int:
    """How many numbers the constants of a module state."""
    told = [each for each in tree.body if isinstance(each, ast.Assign | ast.AnnAssign)]
    return sum(stated(each.value) for each in told if each.value is not None)


def test_tuned_numbers_become_fewer() -> None:
    """Each is a doubt: what asks the same question has one, what follows from another has none."""
    watching = [SRC / name for name in ("activity", "run/watching", *_BESIDE_JOBS)]
    counts = {
        str(path.relative_to(SRC)): tuned_in(parsed(path))
        for path in FILES
        if path in watching or path.parent in watching
    }
    found = {name: n for name, n in counts.items() if n and name not in OF_THE_KERNEL}
    print(sum(found.values()), *found.items(), sep="\n")
    assert_only_falls(found, TUNED)


def test_derived_numbers_are_not_tuned() -> None:
    """A number is counted where it is stated: alone, in a tuple, as a power of two."""
    tree = ast.parse("A = 2\nB, C = 3, -0.5\nD: Final = 1 << 4\nE = 3 * A\nF = 'x'\nG = True\n")
    assert tuned_in(tree) == 4


def assert_only_falls(found: Mapping[str, int], known: Mapping[str, int]) -> None:
    """Nothing new, and nothing more of what is known."""
    assert {name: n for name, n in found.items() if n > known.get(name, 0)} == {}


def test_a_table_only_falls() -> None:
    """What is new fails, and what grows; what shrinks or goes does not."""
    for found in ({"a": 13}, {"a": 12}, {}):
        assert_only_falls(found, {"a": 13})
    for found in ({"a": 14}, {"a": 13, "b": 1}):
        with pytest.raises(AssertionError):
            assert_only_falls(found, {"a": 13})
