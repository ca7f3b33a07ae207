"""Words for what call traces show."""

from __future__ import annotations

from msgspec.structs import replace

from unhang.analysis.claims import Claim, Weighed
from unhang.analysis.sources.traces import LastHeard
from unhang.analysis.words.telling import Words, adding_for, words_for
from unhang.model import LastCall
from unhang.wording import printable

__all__ = ["last_call"]

_MOST = 8


def last_call(call: LastCall) -> str:
    """The last traced call, after "rank 3"."""
    word = "entered" if call.entered else "left"
    frame = call.frame
    return f"{word} {printable(frame.function)} at {printable(frame.file)}:{frame.line}"


@words_for(LastHeard)
def _verdict_of_last_heard(heard: LastHeard, claim: Claim) -> Words:  # noqa: ARG001 - as all words
    call = heard.call
    who = f"Rank {call.rank}" if call.rank >= 0 else f"Process {call.pid}"
    return Words(
        f"{who} made its last traced call {heard.age_s:.0f} s before the others: "
        f"{last_call(call)}.",
        tuple(
            f"open call: {printable(f.function)} at {printable(f.file)}:{f.line}"
            for f in call.open_calls[:_MOST]
        ),
        (),
        ("Sample it with unhang stacks, or trace its system calls with --syscalls.",),
    )


@adding_for(LastHeard)
def _adding_last_heard(heard: LastHeard, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001
    names = [printable(frame.function) for frame in heard.call.open_calls[:_MOST]]
    within = f"; open calls, innermost first: {', '.join(names)}" if names else ""
    said = (
        f"Trace: rank {heard.call.rank} {last_call(heard.call)}, {heard.age_s:.1f} s before the "
        f"last call of all ranks{within}."
    )
    return replace(words, evidence=(said, *words.evidence))
