"""Sentences, sites and next steps for ranks as their stacks show them.

What is said of a rank is said here once, for verdicts from stacks alone and for those from dumps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, Literal

from unhang.analysis.sites import StackBook
from unhang.analysis.sources.looks import RankLook
from unhang.report import Site, Subject
from unhang.wording import count_of, rank_phrase

__all__ = [
    "MOST",
    "MOVES",
    "actions",
    "common",
    "doing",
    "grouped",
    "place_of",
    "ranks_in",
    "sentences",
    "sites_of",
    "subjects_of",
    "unchanged",
]

MOST: Final = 8
"""Sentences, sites or subjects of one kind in a finding."""

MOVES: Final = (
    "It may only be slow, and come: then give the others no call to wait in while one rank works.",
)
"""What else a rank that moves may be."""

_NAMED = 3
_ACTIONS: Final[dict[str, str]] = {
    "stopped": "Let it go on: kill -CONT PID; find out who stopped it (a debugger, job control).",
    "dead": "Look for its exit code and for the kernel's out-of-memory killer (dmesg).",
    "uninterruptible": "Check the file systems and drivers of its host: dmesg, df, mount.",
    "data-loader": "Look at its data-loader workers too: unhang stacks --tree PID.",
    "checkpoint": "Check the space and the health of the file system that it writes to.",
    "file-system": "Check the file system that it reads or writes: df, mount, dmesg.",
    "prompt": "Somebody left a breakpoint, or the program asks for input: look at that line.",
    "gil": "Let that native call release the GIL, or move it to another process.",
    "compilation": "Remove stale lock files of the build (see TORCH_EXTENSIONS_DIR).",
}


def doing(looks: Sequence[RankLook]) -> str:
    """What some ranks do, for a summary: at most three places, the others counted."""
    groups = grouped(looks)
    parts = [
        f"{rank_phrase(ranks_in(same))} {'is' if len(same) == 1 else 'are'} {same[0].says}"
        for same in groups[:_NAMED]
    ]
    if len(groups) > _NAMED:
        rest = sum(len(same) for same in groups[_NAMED:])
        parts.append(f"{count_of(rest, 'more rank')} elsewhere too")
    return ", ".join(parts)


def unchanged(looks: Sequence[RankLook]) -> str:
    """How two looks compare, to end a sentence with; nothing where only one was taken."""
    if all(look.moves for look in looks):
        return ", and moving" if all(look.moved for look in looks) else ", and working"
    if all(look.moved is False for look in looks):
        return ", unchanged between two looks"
    return ", and moving" if all(look.moved for look in looks) else ""


def place_of(same: Sequence[RankLook]) -> str:
    """What ranks that do the same do, and where."""
    return f"{rank_phrase(ranks_in(same))} {same[0].says}"


def sentences(looks: Sequence[RankLook]) -> tuple[str, ...]:
    """One sentence for all ranks that do the same, most ranks first."""
    found = []
    for same in grouped(looks)[:MOST]:
        phrase = rank_phrase(ranks_in(same))
        verb = "is" if len(same) == 1 else "are"
        found.append(f"{phrase[:1].upper()}{phrase[1:]} {verb} {same[0].says}{unchanged(same)}.")
    return tuple(found)


def actions(looks: Sequence[RankLook]) -> tuple[str, ...]:
    """What to do about ranks that are where they are, commonest kind first."""
    pids: dict[str, list[int]] = {}
    for look in looks:
        pids.setdefault(look.meaning.kind, []).append(look.pid)
    told = []
    for kind, which in sorted(pids.items(), key=lambda item: -len(item[1])):
        if kind in _ACTIONS:
            pid = str(which[0]) if len(which) == 1 and which[0] > 0 else "PID"
            told.append(_ACTIONS[kind].replace("PID", pid))
    return tuple(told) or ("Look at that line, and at its log: unhang logs.",)


def ranks_in(looks: Iterable[RankLook]) -> tuple[int, ...]:
    """Their numbers, ascending."""
    return tuple(sorted(look.rank for look in looks))


def common(values: Sequence[str]) -> str:
    """The value that all share, or nothing."""
    return values[0] if len(set(values)) == 1 else ""


def grouped(looks: Iterable[RankLook], *, by_op: bool = False) -> list[list[RankLook]]:
    """Ranks that do the same at the same place, largest groups first; by_op: in the same call."""
    groups: defaultdict[object, list[RankLook]] = defaultdict(list)
    for look in looks:
        key = (look.meaning.op or look.meaning.says, look.meaning.site)
        groups[key if by_op else (look.says, look.gone)].append(look)
    return sorted(groups.values(), key=lambda same: (-len(same), same[0].rank))


def sites_of(
    looks: Iterable[RankLook], role: Literal["culprit", "victim"], book: StackBook
) -> tuple[Site, ...]:
    """Sites of ranks, folded by stack, most ranks first."""
    by_stack: defaultdict[object, list[RankLook]] = defaultdict(list)
    for look in looks:
        by_stack[look.frames].append(look)
    largest = sorted(by_stack.values(), key=lambda same: (-len(same), same[0].rank))
    sites = (
        (book.site(ranks_in(same), role, same[0].frames), same[0].age_s) for same in largest[:MOST]
    )
    return tuple(replace(site, age_s=age_s) for site, age_s in sites if site is not None)


def subjects_of(looks: Sequence[RankLook]) -> tuple[Subject, ...]:
    """The processes of ranks, where they are known."""
    return tuple(
        Subject("process", f"pid {look.pid}", rank=look.rank, host=look.host or None, pid=look.pid)
        for look in looks[:MOST]
        if look.pid > 0
    )
