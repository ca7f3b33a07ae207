"""Words for where ranks stand, as their stacks show it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from unhang.analysis.lives.whereabouts import MOST, ranks_in
from unhang.analysis.rules.telling import subject
from unhang.analysis.sources.stacks import RankLook
from unhang.wording import count_of, rank_phrase

_NAMED = 3
_ACTIONS: Final[dict[str, str]] = {
    "stopped": "Continue it: kill -CONT PID; find out who stopped it (job control, a person).",
    "traced": "Continue it: detach its debugger (see TracerPid in /proc/PID/status); kill -CONT "
    "does not wake it.",
    "frozen": "Thaw its cgroup: docker unpause, podman unpause, or write 0 into its cgroup.freeze "
    "(version 1: THAWED into its freezer.state); kill -CONT does not wake it.",
    "dead": "Look for its exit code and for the kernel's out-of-memory killer (dmesg).",
    "uninterruptible": "Check the file systems and drivers of its host: dmesg, df, mount.",
    "data-loader": "Inspect its data-loader workers too: unhang stacks --tree PID.",
    "checkpoint": "Check the free space and health of the file system that it writes to.",
    "file-system": "Check the file system that it reads or writes: df, mount, dmesg.",
    "prompt": "The program is at a breakpoint or asks for input: inspect that line.",
    "gil": "Let that native call release the GIL, or move it to another process.",
    "compilation": "Remove stale lock files of the build (see TORCH_EXTENSIONS_DIR).",
}


def doing(looks: Sequence[RankLook]) -> str:
    """What some ranks do, for a summary: at most three places, the others counted."""
    groups = _told_alike(looks)
    parts = [
        f"{rank_phrase(ranks_in(same))} {'is' if len(same) == 1 else 'are'} {same[0].says}"
        for same in groups[:_NAMED]
    ]
    if len(groups) > _NAMED:
        rest = sum(len(same) for same in groups[_NAMED:])
        parts.append(f"{count_of(rest, 'more rank')} elsewhere too")
    return ", ".join(parts)


def doing_of_engines(looks: Sequence[RankLook]) -> str:
    """What the engines of workers do: a summary names them by process."""
    return ", ".join(f"the engine (process {look.pid}) is {look.says}" for look in looks[:_NAMED])


def _told_alike(looks: Sequence[RankLook]) -> list[list[RankLook]]:
    """Ranks that share a sentence, most first: it is reported once."""
    groups: dict[tuple[str, bool], list[RankLook]] = {}
    for look in looks:
        groups.setdefault((look.says, look.gone), []).append(look)
    return sorted(groups.values(), key=lambda same: (-len(same), same[0].rank))


def unchanged(looks: Sequence[RankLook]) -> str:
    """How two looks compare, to end a sentence with; nothing where only one was taken."""
    if all(look.moves and not look.wakes for look in looks):
        return ", and moving" if all(look.moved for look in looks) else ", and working"
    if all(look.moved is False for look in looks):
        return ", unchanged between two looks"
    return ", and moving" if all(look.moved for look in looks) else ""


def sentences(looks: Sequence[RankLook]) -> Iterator[str]:
    """One sentence for all ranks that do the same, most ranks first."""
    for same in _told_alike(looks)[:MOST]:
        verb = "is" if len(same) == 1 else "are"
        yield f"{subject(ranks_in(same))} {verb} {same[0].says}{unchanged(same)}."


def actions(looks: Sequence[RankLook]) -> tuple[str, ...]:
    """What to do about ranks that are where they are, commonest kind first."""
    pids: dict[str, list[int]] = {}
    for look in looks:
        if (
            look.sample.exit_status is None
        ):  # else it is known how it ended, and no search is needed
            kind = "traced" if look.sample.state == "t" else look.meaning.kind
            kind = "frozen" if look.sample.frozen else kind
            pids.setdefault(kind, []).append(look.pid)
    told = []
    for kind, which in sorted(pids.items(), key=lambda item: -len(item[1])):
        if kind in _ACTIONS:
            pid = str(which[0]) if len(which) == 1 and which[0] > 0 else "PID"
            told.append(_ACTIONS[kind].replace("PID", pid))
    return tuple(told) or ("Look at that line, and at its log: unhang logs.",)
