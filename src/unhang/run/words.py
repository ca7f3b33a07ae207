"""What the patrol says of what it saw: how a rank ended, how slow one is, why a job is spared."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from unhang.model import SlowRank
from unhang.record.contact.heartbeat import Heartbeat
from unhang.run.incident.verdict import Verdict
from unhang.run.watching.roster import Gone
from unhang.wording import printable, rank_phrase

__all__ = [
    "end_words",
    "look_options",
    "pause_words",
    "slow_words",
    "why_spared",
    "work_words",
]

ENDING = ("fix-code", "restart", "restart-without")
"""Decisions after which the job as it stands is of no more use."""

LETS_BE = {
    "unsure": "the evidence is not enough to act on",
    "not-enough-evidence": "the evidence is not enough to act on",
    "idle": "who is waited for may have nothing to do",
}
"""Reasons of decisions that no order to end or to freeze a job overrules."""


def slow_words(slow: SlowRank) -> str:
    """A slow rank in words."""
    since = time.strftime("%H:%M:%S", time.localtime(slow.since_ns / 1e9))
    return (
        f"rank {slow.rank} is slow since {since} ({slow.for_s:.0f} s): between two calls it needs "
        f"{slow.excess:.0%} longer than the others, which wait {slow.late_ms:.1f} ms a call for it"
    )


def work_words(rank: int, beat: Heartbeat | None, quiet_s: float) -> str:
    """A rank that works while the others wait for it: since when, and what it does."""
    since = time.strftime("%H:%M:%S", time.localtime(time.time() - quiet_s))
    activity = f" ({printable(beat.activity)})" if beat is not None and beat.activity else ""
    where = ""
    if beat is not None and beat.seen_file:
        place = f"{Path(beat.seen_file).name}:{beat.seen_line}"
        where = f", now in {printable(beat.seen_function)} at {printable(place)}"
    return (
        f"rank {rank} works since {since}{activity}{where}, and others wait for it: "
        "no alarm before it stops"
    )


def end_words(gone: Gone) -> str:
    """How a rank ended, in words."""
    if gone.memory_kill is not None and gone.memory_kill.is_certain:
        return "was killed by the kernel for want of memory"
    if gone.status is None:
        error = printable(gone.member.mark.exception)
        return f"was ended by {error}" if error else "has gone without a word"
    if gone.status > 128:  # noqa: PLR2004 - 128 + signal, as shells say it
        with suppress(ValueError):
            return f"was ended by {signal.Signals(gone.status - 128).name}"
    return f"ended with exit code {gone.status}"


def why_spared(verdict: Verdict, on_hang: str, grace_s: float, left: Sequence[int] = ()) -> str:
    """Why the job is not ended or frozen; "" where it may be. No other place decides that.

    Nothing is ended while any rank outside of a call, blamed or not, moves or may only pause; nor
    where a call that ranks waited in is no longer in flight at the moment of acting; nor on
    evidence of which the verdict says that it is not enough to act on. docs/run.md has it.

    Args:
        verdict: Of the evidence, which is some seconds old.
        on_hang: What was asked for.
        grace_s: For how long a rank may pause.
        left: Ranks that have left the call since in which they waited.
    """
    if verdict.status != "problem":
        return "no cause was found: the job is left alone"
    if unsettled := _may_go_on(verdict, grace_s, left):
        return unsettled
    if verdict.unseen:
        return "the nodes that are waited for were not looked at: the job is left alone"
    if verdict.reason in LETS_BE:
        return f"{LETS_BE[verdict.reason]}: the job is left alone"
    if verdict.guessed:
        return "nobody is named, and that is a guess: the job is left alone"
    waits = verdict.action == "wait" or (on_hang == "decide" and verdict.action not in ENDING)
    return "the decision is not to end the job: it is left alone" if waits else ""


def _may_go_on(verdict: Verdict, grace_s: float, left: Sequence[int]) -> str:
    """Who may make the job go on by itself, and what is done about that; "" for no rank."""
    if verdict.moving:
        verb = "moves" if len(verdict.moving) == 1 else "move"
        who = rank_phrase(verdict.moving)
        return f"{who} {verb}: the job is left alone, and watched for the moment that it stops"
    if left:
        have = "has" if len(left) == 1 else "have"
        return (
            f"{rank_phrase(left)} {have} left the call since, which failed: the job is left alone "
            f"until nothing has moved for {grace_s:.0f} s (--grace)"
        )
    return pause_words(verdict, "the job is left alone until", grace_s) if verdict.pausing else ""


def pause_words(verdict: Verdict, until: str, grace_s: float) -> str:
    """Who may only pause, and what is done until that has lasted for so long."""
    who = rank_phrase(verdict.pausing)
    return f"{who} may only pause: {until} nothing has moved for {grace_s:.0f} s (--grace)"


def look_options() -> list[str]:
    """Options of the text report for our stderr."""
    terminal = os.isatty(2)
    width = min(shutil.get_terminal_size().columns, 120) if terminal else 80
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return ["--width", str(max(width, 40)), *(["--color"] if terminal and not plain else [])]
