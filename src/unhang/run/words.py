"""What the patrol says of what it saw: how a rank ended, how slow one is."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from unhang.model import SlowRank
from unhang.record.contact.heartbeat import Heartbeat
from unhang.run.watching.roster import Gone, WatchedRank
from unhang.wording import printable, rank_phrase


def slow_words(slow: SlowRank) -> str:
    """A slow rank in words."""
    since = time.strftime("%H:%M:%S", time.localtime(slow.since_ns / 1e9))
    return (
        f"rank {slow.rank} is slow since {since} ({slow.for_s:.0f} s): between two calls it takes "
        f"{slow.excess:.0%} longer than the others, which wait {slow.late_ms:.1f} ms a call for it"
    )


def work_words(rank: int, beat: Heartbeat | None, quiet_s: float, host: str = "") -> str:
    """A rank that works while the others wait for it: since when, and what it does."""
    since = time.strftime("%H:%M:%S", time.localtime(time.time() - quiet_s))
    activity = f" ({printable(beat.activity)})" if beat is not None and beat.activity else ""
    where = f" on {printable(host)}" if host else ""
    if beat is not None and beat.seen_file:
        place = f"{Path(beat.seen_file).name}:{beat.seen_line}"
        where = f", now in {printable(beat.seen_function)} at {printable(place)}"
    return (
        f"rank {rank} works since {since}{activity}{where}, and others wait for it: "
        "no alarm before it stops"
    )


def elsewhere_words(starter: str, alone_s: float) -> str:
    """A command that starts its ranks on other nodes, and none here: what watches them there."""
    return (
        f"no rank of this command has been seen on this node for {alone_s:.0f} s, and {starter} "
        "may start them on others, where this does not look. To watch them there, put it behind: "
        f"{starter} … unhang run --case DIR -- …, with a directory that all nodes share"
    )


def unarmed_words(lacking: Iterable[WatchedRank]) -> Iterator[str]:
    """What it means that ranks have no recorder, or less of one: a sentence for each reason."""
    without: dict[str, list[int]] = {}
    limited: dict[str, list[int]] = {}
    for member in lacking:
        reasons = without if member.unarmed else limited
        reasons.setdefault(member.unarmed or member.mark.limited, []).append(member.rank)
    for why, ranks in limited.items():
        yield f"{rank_phrase(ranks)}: watched, without dumps: {printable(why)}"
    for why, ranks in without.items():
        yield (
            f"no recorder in {rank_phrase(ranks)}: {why}. unhang does not see their calls: "
            "CPU time and bytes show whether they move, and stacks come from outside."
        )


def end_words(gone: Gone) -> str:
    """How a rank ended, in words."""
    if gone.memory_kill is not None and gone.memory_kill.is_certain:
        return "was killed by the kernel for lack of memory"
    if gone.status is None:
        error = printable(gone.member.mark.exception)
        return f"was ended by {error}" if error else "disappeared without a message"
    if gone.status > 128:  # noqa: PLR2004 - 128 + signal, as shells say it
        with suppress(ValueError):
            return f"was ended by {signal.Signals(gone.status - 128).name}"
    return f"ended with exit code {gone.status}"


def look_options() -> list[str]:
    """Options of the text report for our stderr."""
    terminal = os.isatty(2)
    width = min(shutil.get_terminal_size().columns, 120) if terminal else 80
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return ["--width", str(max(width, 40)), *(["--color"] if terminal and not plain else [])]
