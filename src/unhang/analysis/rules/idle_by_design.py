"""A rank whose peers have always waited for it in this call: it may lead them, and have no work.

In a server, a rollout loop or a work queue one rank waits for the next request in its own code, and
the others for that rank, in a broadcast. Such a loop is idle by design: to the dumps and the stacks
of one moment it looks like a rank that never came. What it did before tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from msgspec.structs import replace

from unhang.analysis.findings.late import is_comparable
from unhang.analysis.matching.meetings import meetings_of
from unhang.analysis.rules.by_stacks import HOST_PROGRAM_STUCK
from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.never_joined import NEVER_JOINED
from unhang.analysis.rules.rule import ANY, Observer, Rule
from unhang.analysis.rules.telling import Words, adding_for, begun, or_else, subject, waits
from unhang.analysis.shared.claims import Bearing, Claim, Observation, Seeing, Weighed
from unhang.analysis.shared.situation import Situation
from unhang.analysis.sources.stacks import RankLook
from unhang.model import Frame
from unhang.stacks.ownership import bare_name, under
from unhang.wording import rank_phrase

_LEAST_WAITS: Final = 5
_MOST: Final = 0.5
"""Share of the time that the others have waited for it there. A server with a request each 0.3 s
has 0.97; of ranks that are merely slow, one that needs half as long again has 0.33."""

_UNSET_MS: Final = 100.0
"""By so much clocks of hosts may differ that nothing in the dumps sets."""

_SAID: Final = frozenset({"idle", "waiting", "waiting for work", "waiting for requests"})
"""What a program says of itself where it has no work."""

_HANDS_OUT: Final = ("broadcast", "scatter", "recv", "irecv")

_SERVERS: Final = (
    ("socketserver.py", ("serve_forever",)),
    ("uvicorn/server.py", ("run", "serve", "main_loop")),
    ("hypercorn/", ("serve", "worker_serve")),
    ("werkzeug/serving.py", ("serve_forever", "run_simple")),
    ("waitress/server.py", ("run",)),
    ("aiohttp/web.py", ("run_app", "_run_app")),
    ("grpc/_server.py", ("_serve", "wait_for_termination")),
    ("grpc/aio/_server.py", ("wait_for_termination",)),
    ("tornado/ioloop.py", ("start",)),
    ("asyncio/base_events.py", ("serve_forever",)),
    ("multiprocessing/managers.py", ("serve_forever", "serve_client")),
)
"""Loops of servers, by file and function: what comes in there is work for the rest of a process."""

_ACCEPTS: Final = ("socket.py", ("accept",))
"""Where a server without a loop of a library's waits for a client. Only the main thread counts:
threads that share tensors or serve a debugger stand there in programs that serve no requests."""


class Leads(Observation, frozen=True, kw_only=True):
    """The others have waited for it in such calls before, again and again, and most of the time.

    Attributes:
        waits: In how many calls like the one in question.
        share: Part of the time that they waited for it there, but for the longest wait: any rank
            pauses once.
    """

    waits: int
    share: float


class SaysIdle(Observation, frozen=True, kw_only=True):
    """Their programs have said that they wait for work: `unhang.idle()`, `unhang.phase("idle")`."""


class Serves(Observation, frozen=True, kw_only=True):
    """They wait for what a server hands in that runs in the same process.

    Attributes:
        server: The frame of its loop.
    """

    server: Frame


def _idle_by_design(claim: Claim, facts: CaseFacts) -> Iterator[Seeing]:
    """That all who are waited for, or stand still, say that they are idle, or serve requests."""
    looks = facts.lives.looks_at(claim.culprits or claim.victims)
    if not looks or any(look.gone or look.unseen or look.moves for look in looks):
        return
    ranks = tuple(look.rank for look in looks)
    if all(look.sample.activity.casefold() in _SAID for look in looks):
        yield SaysIdle(source="stacks", ranks=ranks), Bearing.SAYS_IDLE
        return
    servers = [_server_of(look) for look in looks]
    if _is_led(claim) and (first := servers[0]) is not None and None not in servers:
        yield Serves(source="stacks", ranks=ranks, server=first), Bearing.SERVES


def _is_led(claim: Claim) -> bool:
    """Whether its call hands out what one rank has got; or no call is waited in."""
    return not claim.op or claim.op.startswith(_HANDS_OUT)


def _server_of(look: RankLook) -> Frame | None:
    """The loop of a server in the process of a rank that waits in no call, for what it gets."""
    if not look.may_get_work or look.waits:
        return None
    if look.frames and _is_at(look.frames[0], _ACCEPTS):
        return look.frames[0]
    frames = (frame for thread in look.sample.threads for frame in thread.frames)
    return next((f for f in frames if any(_is_at(f, place) for place in _SERVERS)), None)


def _is_at(frame: Frame, place: tuple[str, tuple[str, ...]]) -> bool:
    path, names = place
    return bare_name(frame.function) in names and under(frame.file, path)


def _led_before(claim: Claim, facts: CaseFacts) -> Iterator[Seeing]:
    """That the peers of one rank that is absent have always waited for it so."""
    looks, situation = facts.lives.looks_at(claim.culprits), facts.situation
    if situation is None or len(looks) != 1 or not looks[0].may_get_work:
        return
    found = (_leads(situation, each, claim) for each in _calls(situation, claim))
    seen = next(filter(None, found), None)
    if seen is not None:
        yield seen, Bearing.LED_BEFORE


def _calls(situation: Situation, claim: Claim) -> list[int]:
    """The waiting calls that a claim is about: one, where group and number name it."""
    return [
        call
        for call in range(situation.heads.n_collective)
        if situation.seq(call) == claim.seq and situation.group_ref(call) == claim.group
    ]


def _leads(situation: Situation, call: int, claim: Claim) -> Leads | None:
    evidence, row = situation.evidence, int(situation.row(call))
    channel, (rank,) = int(situation.heads.channel[call]), claim.culprits
    meetings = next((each for each in meetings_of(evidence) if each.channel == channel), None)
    index = int(evidence.ranks.index_of([rank])[0])
    if meetings is None or index not in meetings.ranks.tolist():
        return None
    mine = meetings.ranks == index
    late = meetings.arrived[:, mine][:, 0] - meetings.arrived[:, ~mine].max(axis=1)
    late = late - (0.0 if is_comparable(evidence, meetings) else _UNSET_MS)
    # Lines are not used: the first dumps of a hang come without stacks.
    names = evidence.case.calls.name
    waits = late[(names[meetings.rows[:, 0]] == names[row]) & (late > 0)]
    if len(waits) < _LEAST_WAITS:
        return None
    longest = float(waits.max())
    share = (float(waits.sum()) - longest) / (float(np.ptp(meetings.arrived)) - longest)
    return (
        Leads(source="dumps", ranks=(rank,), waits=len(waits), share=share)
        if share >= _MOST
        else None
    )


RULE: Final = Rule(
    observers=(
        # A leader without work is idle, whatever explains that it has not come.
        Observer(sees=_led_before, roles=ANY, kinds=(NEVER_JOINED,)),
        Observer(sees=_idle_by_design, roles=ANY, kinds=(NEVER_JOINED, HOST_PROGRAM_STUCK)),
    )
)


@adding_for(Leads)
def _adding_leads(seen: Leads, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001
    who = rank_phrase(seen.ranks)
    said = (
        f"In {seen.waits:,} earlier calls like this one the others waited for {who}, "
        f"{seen.share:.0%} of the time."
    )
    words = replace(words, evidence=(said, *words.evidence))
    return or_else(words, f"{begun(who)} may lead them and have no work: no request has come in.")


@adding_for(SaysIdle)
def _adding_says_idle(seen: SaysIdle, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001
    one = len(seen.ranks) == 1
    said = f"{subject(seen.ranks)} {'says' if one else 'say'} that {'it is' if one else 'they are'}"
    for_it = f", and {waits(claim.victims)} for it" if claim.culprits else ""
    return replace(
        words,
        summary=f"{said} idle, waiting for work{for_it}.",
        evidence=(words.summary, *words.evidence),
    )


@adding_for(Serves)
def _adding_serves(seen: Serves, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001
    place = f"{seen.server.function} ({seen.server.file.rpartition('/')[2]}:{seen.server.line})"
    runs = "it runs" if len(seen.ranks) == 1 else "they run"
    said = f"{subject(seen.ranks)} may be idle, waiting for work: {runs} a server in {place}."
    return or_else(words, said)
