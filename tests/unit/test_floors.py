"""Imports go down five floors and never in a circle; a class name means one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
import rustworkx

SRC = Path(__file__).parents[2] / "src" / "unhang"

FLOORS = {
    "cli": 5, "__main__": 5,
    "run": 4, "serve": 4, "doctor": 4, "numerics": 4, "demo": 4, "rehearse": 4, "reproduce": 4,
    "fixing": 4,
    "ingest": 3, "collect": 3, "analysis": 3, "tables": 3, "reports": 3, "cores": 3,
    "trace": 3, "context": 3, "pasted": 3,
    "casedir": 2, "surroundings": 2, "room": 2, "batches": 2, "case": 2, "casebuilder": 2,
    "picture": 2, "report": 2, "stacks": 2, "logs": 2, "redact": 2, "ras": 2, "turns": 2,
    "spans": 2, "rasclient": 2, "telltale": 1,
    "activity": 1, "model": 1, "kinds": 1, "errors": 1, "wording": 1, "bounds": 1, "_version": 0,
    "checks": 1, "rankenv": 1, "catalogue": 2, "incoming": 1,
    "globs": 1, "built": 1, "isolated": 0, "packed": 1, "regular": 1, "torchenv": 1, "faults": 1,
}  # fmt: skip
APART = {"record", "testing", "__init__", "integrations", "pausing", "printing"}
SEPARATE = {"ingest", "analysis", "reports"}
LIGHT = {
    "built",
    "model",
    "kinds",
    "checks",
    "rankenv",
    "torchenv",
    "errors",
    "wording",
    "bounds",
    "_version",
    "telltale",
}


def module_name(path: Path) -> str:
    """The dotted name of a file below src."""
    parts = path.relative_to(SRC.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = sorted(SRC.rglob("*.py"))
MODULES = {module_name(path): path for path in FILES}


def house_of(path: Path) -> str:
    """The floor's name of a file: its top package, or its own name."""
    relative = path.relative_to(SRC)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text())


@cache
def imports_in(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """What a file imports anywhere in it, also inside functions, as it says it."""
    nodes = ast.walk(parsed(path))
    return tuple(node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)))


@cache
def imports_of(path: Path) -> frozenset[str]:
    """Names of ours that a file imports."""
    found = set()
    for node in imports_in(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            whole = node.module == "unhang"
            found |= {name if whole or name in MODULES else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return frozenset(name for name in found if name.split(".")[0] == "unhang")


STEPS_OF_INGEST = {
    "discover": 0, "columns": 1, "pickles": 1, "jsonfile": 1, "handed": 1, "savedreports": 2,
    "native": 2, "pages": 2, "parts": 3, "reading": 4, "beside": 3, "groups": 3,
    "continuing": 3, "incidents": 4,
    "reducing": 5, "assemble": 4, "loading": 5, "tasks": 6, "__init__": 6, "ray": 7,
}  # fmt: skip


def houses_of(path: Path) -> set[str]:
    """The packages and single modules of ours that a file imports from."""
    return {name.split(".")[1] for name in imports_of(path) if "." in name} - {"__version__"}


def circles(arrows: dict[str, set[str]]) -> list[set[str]]:
    """Names that reach each other, by importing."""
    names = sorted({*arrows, *(name for targets in arrows.values() for name in targets)})
    number = {name: i for i, name in enumerate(names)}
    graph = rustworkx.PyDiGraph()
    graph.add_nodes_from(names)
    graph.add_edges_from(
        [(number[a], number[b], None) for a, targets in arrows.items() for b in targets if a != b]
    )
    found = rustworkx.strongly_connected_components(graph)
    return [{names[i] for i in group} for group in found if len(group) > 1]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SRC)))
def test_the_product_never_imports_the_lab(path: Path) -> None:
    """The lab lies beside the product and outside the wheel."""
    for node in imports_in(path):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        assert not [name for name in names if name.split(".")[0] == "lab"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SRC)))
def test_imports_go_down(path: Path) -> None:
    """No file imports from a floor above its own, nor from a room it must not know."""
    home = house_of(path)
    if home in APART:
        return
    assert home in FLOORS, f"{home} has no floor: give it one here and in ARCHITECTURE.md"
    for target in houses_of(path) - {home, "record"}:
        assert target in FLOORS, f"{home} imports {target}, which has no floor"
        assert FLOORS[target] <= FLOORS[home], f"{home} must not import {target}"
        assert not {home, target} <= SEPARATE, f"{home} must not know {target}"


def test_an_import_of_what_is_not_there_is_seen(tmp_path: Path) -> None:
    """An unknown package has no floor, whatever way it is imported."""
    path = tmp_path / "new.py"
    path.write_text(
        "from unhang import __version__, loft\n"
        "def f():\n    from unhang.attic import box\n    import unhang.cellar.shelf\n"
    )
    assert houses_of(path) == {"attic", "cellar", "loft"}
    assert not houses_of(path) & set(FLOORS)


def test_no_modules_import_in_a_circle() -> None:
    """Imports inside functions count too: they hide a circle, and break none."""
    arrows = {name: set(imports_of(path)) & set(MODULES) for name, path in MODULES.items()}
    assert circles(arrows) == []


def test_no_packages_import_in_a_circle() -> None:
    """Neither do packages of one floor."""
    arrows: defaultdict[str, set[str]] = defaultdict(set)
    for path in FILES:
        if house_of(path) != "__init__":  # it names what is public, and imports that when asked
            arrows[house_of(path)] |= houses_of(path)
    assert circles(arrows) == []


def test_a_circle_is_found() -> None:
    """Of two, through a third."""
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}}) == [{"a", "b", "c"}]


def test_a_class_name_means_one_thing() -> None:
    """Nobody has to ask which `Plan` is meant."""
    homes = defaultdict(list)
    for name, path in MODULES.items():
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


@pytest.mark.parametrize(
    "path", [p for p in FILES if house_of(p) == "record"], ids=lambda p: p.name
)
def test_the_recorder_stands_alone(path: Path) -> None:
    """`unhang.record` runs in somebody's job: of the rest, it imports four light modules."""
    assert houses_of(path) <= {
        "record", "_version", "telltale", "rankenv", "torchenv", "built",
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(LIGHT))
def test_the_ground_floor_is_light(name: str) -> None:
    """The ground floor needs the standard library only."""
    folder = SRC / name
    files = folder.rglob("*.py") if folder.is_dir() else [SRC / f"{name}.py"]
    for node in (node for path in files for node in ast.walk(parsed(path))):
        if isinstance(node, ast.ImportFrom) and node.module:
            assert node.module.split(".")[0] in {"unhang", "__future__", "collections",
                                                  "dataclasses", "enum",
                                                  "functools", "pathlib", "typing"}  # fmt: skip


@pytest.mark.parametrize("path", sorted((SRC / "ingest").rglob("*.py")), ids=lambda p: p.name)
def test_ingest_reads_downwards(path: Path) -> None:
    """From `load` to the bytes: what a step imports of ingest comes before it."""
    home = path.relative_to(SRC / "ingest").parts[0].removesuffix(".py")
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("unhang.ingest."):
            target = str(node.module).split(".")[2]
            assert target == home or STEPS_OF_INGEST[target] < STEPS_OF_INGEST[home]
