"""Processes that abort their communicators, and have not come out of it.

## What it means

torch aborts the communicators of a process after something else has gone wrong: a call that timed
out, an exception, or `abort` in the program. The abort waits for the device and for NCCL's own
threads, and where those do not move it never returns. Then the process neither works nor ends, and
its peers wait until their own time-outs. What stands in the stack is how the job dies: why it
failed came before.

## What it rests on

- A thread whose stack has `c10d::ProcessGroupNCCL::abort`, `c10d::NCCLComm::abort` or
  `ncclCommAbort` in it, in the last look that was taken. Its innermost frame is what the abort
  waits for.
- No cause that is found: an abort is what comes of one, and is left out then.

## Example

From a public report (NVIDIA/nccl, issue 1777): the abort waits for the thread of NCCL's proxy.

    #0  0x00007ff0b872aa1f in syscall () from /lib64/libc.so.6
    #1  0x00007fefe4a7fe62 in c10d::ProcessGroupNCCL::waitForFutureOrTimeout()
    #2  0x00007fefe4a7fe62 in c10d::ProcessGroupNCCL::abort()

## A near miss

`c10d::ProcessGroupNCCL::shutdown` in any thread, by which `destroy_process_group` ends a job that
is done: it waits for peers that are still at work, and no failure led there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.rule import Rule, Unless
from unhang.analysis.rules.telling import Words, subject, words_for
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.analysis.sources.stacks import RankLook, looks_without_rank
from unhang.kinds import Kind, Trait
from unhang.model import Frame
from unhang.report import Subject
from unhang.stacks.once import each_once
from unhang.stacks.ownership import bare_name
from unhang.wording import printable

KIND: Final = Kind(
    "UH608",
    "abort-unfinished",
    "failure",
    "A process aborts its communicators after a failure, and the abort has not finished.",
    role="observation",
    traits=Trait.UNDECIDED,
    alternatives=(
        "The abort may still finish: it waits for the device and for NCCL's own threads.",
    ),
    actions=(
        "Find the error that came first: unhang logs FILE (time-outs, exceptions, NCCL WARN).",
        "Check whether it returns: unhang stacks --samples 2 --interval 30.",
    ),
)

_ABORTS: Final = ("c10d::ProcessGroupNCCL::abort", "c10d::NCCLComm::abort", "ncclCommAbort")
_ENDS: Final = "ProcessGroupNCCL::shutdown"
"""An orderly end, which may abort in a thread of its own."""
_MOST: Final = 8


class Aborting(Struct, frozen=True):
    """Processes in an abort, each with the innermost of its functions."""

    who: tuple[tuple[RankLook, str], ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those of known rank."""
        return tuple(look.rank for look, _ in self.who if look.rank >= 0)


def _claims(facts: CaseFacts) -> Iterator[Claim]:
    looks = [*facts.lives.sampled.values(), *looks_without_rank(facts.case.samples)]
    who = tuple((look, within) for look in looks if (within := _aborts_in(look)))
    if who:
        about = Aborting(who)
        yield Claim(
            kind=KIND,
            rests_on="stacks",
            about=about,
            subjects=tuple(_subject(look) for look, _ in who[:_MOST] if look.pid > 0),
            doubts=(Doubt.ONE_MOMENT,),
        )


def _aborts_in(look: RankLook) -> str:
    """The innermost function of a thread that aborts communicators; "" where none does."""
    stacks = [thread.frames for thread in look.sample.threads]
    if look.gone or any(map(_ends, stacks)):
        return ""
    found = next(filter(_aborts, stacks), None)
    return bare_name(found[0].function) if found else ""


@each_once
def _ends(frames: tuple[Frame, ...]) -> bool:
    return any(_ENDS in frame.function for frame in frames)


@each_once
def _aborts(frames: tuple[Frame, ...]) -> bool:
    return any(frame.function.startswith(_ABORTS) for frame in frames)


def _subject(look: RankLook) -> Subject:
    rank, host = (look.rank if look.rank >= 0 else None), look.host or None
    return Subject("process", f"pid {look.pid}", rank=rank, host=host, pid=look.pid)


RULE: Final = Rule(kind=KIND, unless=Unless.CAUSE, tells=_claims)


@words_for(Aborting)
def _verdict_of_aborting(about: Aborting, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it
    verb, its = ("aborts", "its") if len(about.who) == 1 else ("abort", "their")
    return Words(
        f"{_names(about)} {verb} {its} communicators after an earlier failure, which the stack "
        "does not show.",
        tuple(f"{_name(look)} is in {printable(at, 80)}." for look, at in about.who[:_MOST]),
    )


def _names(about: Aborting) -> str:
    if len(about.who) == 1:
        return _name(about.who[0][0])
    if about.ranks:
        return subject(about.ranks)
    return f"{len(about.who):,} processes"


def _name(look: RankLook) -> str:
    if look.rank >= 0:
        return f"Rank {look.rank}"
    return f"Process {look.pid}" if look.pid > 0 else "A process"
