"""What is not alike on all ranks of a case, and between two cases: arguments, environment, limits.

Read from what was collected of nodes and ranks, as hostile as any other input. What each rank has
of its own (its number, node, devices) is left out, and so is what hardly two have in common.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from unhang.incoming import value_in
from unhang.rankenv import VARIABLES
from unhang.regular import leading_out
from unhang.report import RankStatus, Unlike, UnlikeSide
from unhang.telltale import REMOVED
from unhang.wording import printable

_MOST_FILES: Final = 64
_MOST_NODES: Final = 4_096
_MOST_BYTES: Final = 4 << 20
_MOST: Final = 12
_MOST_VALUES: Final = 4
_LONGEST: Final = 120
_OF_NODES: Final = ("torch", "python", "revision", "kernel", "machine", "cpus", "nccl", "driver")
_OWN: Final = re.compile(
    r"RANK|PROCID|LOCALID|NODEID|NODENAME|HOSTNAME|LAUNCH_NODE|_PID|_UID|GTIDS|VISIBLE_DEVICES|"
    r"ERROR_FILE|^UNHANG_|^PMIX?_|STEP_|TASK|_HOST$|_IPADDR|CPU_BIND|TOPOLOGY_ADDR|^PYTHON_"
)
"""Variables by which ranks and nodes are told apart, next to those of launchers' tables."""
_NUMBERED: Final = re.compile(r"--?[\w-]*rank[\w-]*(=|$)")

Facts = dict[str, str]


def read_json(path: Path) -> Any:  # noqa: ANN401 - JSON
    """What a file of a case holds; None where it is none, too large, or no JSON."""
    return value_in(path, _MOST_BYTES)


def files_of(case: Path, *patterns: str, most: int = _MOST_FILES) -> list[Path]:
    """The first files below `env` of a case, without what leads out of it."""
    folder = case / "env"
    outside = set(leading_out(folder, [""])) if folder.is_dir() else set()
    found = {path for pattern in patterns for path in folder.glob(pattern)}
    return sorted(found - outside)[:most]


def differences_of(case: Path, ranks: Iterable[RankStatus]) -> tuple[Unlike, ...]:
    """Facts that some ranks have otherwise than the rest, the rest first.

    Args:
        case: Its directory.
        ranks: With their hosts: a node may be described without its ranks.
    """
    facts = _facts_of(case, ranks)
    names = sorted({name for own in facts.values() for name in own}, key=_place)
    return tuple(filter(None, (_difference(name, facts) for name in names)))[:_MOST]


def changed_between(one: Path, other: Path) -> Iterator[tuple[str, str, str]]:
    """Facts that most ranks of one case have otherwise than most of the other."""
    first, second = (_usual(_facts_of(case, ())) for case in (one, other))
    for name in sorted({*first, *second}, key=_place) if first and second else ():
        values = first.get(name, ""), second.get(name, "")
        if values[0] != values[1]:
            yield (name, *values)


def _place(name: str) -> tuple[bool, str]:
    return name.isupper(), name  # arguments and versions stand before variables


def _usual(facts: Mapping[int, Facts]) -> Facts:
    """The value that most have, by name."""
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    for own in facts.values():
        for name, value in own.items():
            counted[name][value] += 1
    return {name: count.most_common(1)[0][0] for name, count in counted.items()}


def _difference(name: str, facts: Mapping[int, Facts]) -> Unlike | None:
    """The sides of a fact, the largest first; None where it is alike, or each rank's own."""
    by_value: dict[str, list[int]] = defaultdict(list)
    for rank, own in facts.items():
        # A variable may be absent; of a version that no file tells nothing is known.
        if name in own or (name.isupper() and any(map(str.isupper, own))):
            by_value[own.get(name, "")].append(rank)
    told = sum(map(len, by_value.values()))
    if not 1 < len(by_value) <= min(_MOST_VALUES, max(told // 2, 2)):
        return None
    sides = sorted(by_value.items(), key=lambda side: (-len(side[1]), side[1]))
    return Unlike(name, tuple(UnlikeSide(value, tuple(sorted(ranks))) for value, ranks in sides))


def _facts_of(case: Path, ranks: Iterable[RankStatus]) -> dict[int, Facts]:
    """What is known of each rank; of nodes without ranks, by a number below zero."""
    found: dict[int, Facts] = defaultdict(dict)
    hosted: dict[str, list[int]] = defaultdict(list)
    inside: dict[str, list[int]] = defaultdict(list)
    for status in ranks:
        hosted[status.host or ""].append(status.rank)
    for path in files_of(case, "*/ranks.json", most=_MOST_NODES):
        for rank, own in _fields(read_json(path)):
            if rank.isascii() and rank.isdigit():
                found[int(rank[:9])].update(_of_process(own))
                inside[path.parent.name].append(int(rank[:9]))
    nodes = files_of(case, "*/node.json", "node-*.json", most=_MOST_NODES)
    for number, path in enumerate(nodes, 1):
        node = dict(_fields(read_json(path)))
        here = inside.get(path.parent.name) or hosted.get(str(node.get("host", ""))) or [-number]
        for each in here:
            found[each].update({**_of_node(node), **found[each]})
    return found


def _fields(value: object) -> Iterable[tuple[str, Any]]:
    return value.items() if isinstance(value, dict) else ()


def _of_process(told: object) -> Facts:
    own = dict(_fields(told))
    words = own.get("command")
    arguments = _arguments(words) if isinstance(words, list) else ""
    return {**({"arguments": arguments} if arguments else {}), **_variables(own)}


def _of_node(node: Mapping[str, object]) -> Facts:
    values = {name: node[name] for name in _OF_NODES if node.get(name)}
    limits = {f"limit {name}": value for name, value in _fields(node.get("limits"))}
    return {**{k: _said(v) for k, v in {**values, **limits}.items()}, **_variables(node)}


def _variables(told: Mapping[str, object]) -> Facts:
    return {
        name: _said(value)
        for name, value in _fields(told.get("environment"))
        if name.isupper() and value != REMOVED and not (name in VARIABLES or _OWN.search(name))
    }


def _arguments(words: list[object]) -> str:
    """A command line without what numbers the rank; "" of a child, which has none of its own."""
    kept: list[str] = []
    skips = False
    for word in map(str, words):
        if "spawn_main" in word:
            return ""
        numbered = _NUMBERED.match(word)
        if not skips and not numbered:
            kept.append(word)
        skips = bool(numbered) and "=" not in word
    return _said(" ".join(kept))


def _said(value: object) -> str:
    words = [str(each) for each in value] if isinstance(value, list) else [str(value)]
    return printable(" ".join(words), _LONGEST)
