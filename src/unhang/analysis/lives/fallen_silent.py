"""Where culprits were last heard of, by traces; where nobody is blamed, who fell silent first."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from unhang.analysis.claims import Bearing, Claim, Doubt, Seeing
from unhang.analysis.lives.life import Lives
from unhang.analysis.sources.traces import LastHeard
from unhang.kinds import LAST_TRACED_CALL
from unhang.model import Frame
from unhang.report import Site, Subject

__all__ = ["fallen_silent", "last_heard", "sites_heard", "stack_id", "stacks_heard"]

_MOST = 8


def fallen_silent(lives: Lives) -> list[Claim]:
    """Who fell silent first."""
    return [_claim(heard) for heard in lives.heard if heard.is_silent]


def last_heard(claim: Claim, lives: Lives) -> Iterator[Seeing]:
    """What the culprits of a claim did last, by their traces; the last is told first."""
    yield from ((heard, Bearing.TRACED) for heard in reversed(_of_culprits(claim, lives)))


def sites_heard(claim: Claim, lives: Lives) -> tuple[Site, ...]:
    """Where culprits were last heard of, of which nothing else tells the place."""
    known = {rank for site in claim.sites if site.role == "culprit" for rank in site.ranks}
    return tuple(
        _site(heard, "culprit")
        for heard in _of_culprits(claim, lives)
        if heard.call.open_calls and heard.call.rank not in known
    )


def _of_culprits(claim: Claim, lives: Lives) -> list[LastHeard]:
    return [heard for heard in lives.heard if heard.call.rank in claim.culprits][:_MOST]


def stack_id(heard: LastHeard) -> str:
    """Under which the stack of its open calls stands in the report."""
    return f"p{heard.call.pid}"


def stacks_heard(lives: Lives) -> dict[str, tuple[Frame, ...]]:
    """The stacks of open calls, by that name."""
    return {stack_id(h): h.call.open_calls for h in lives.heard if h.call.open_calls}


def _site(heard: LastHeard, role: str) -> Site:
    frame = heard.call.open_calls[0]
    return Site(heard.ranks, role, frame.file, frame.line, frame.function, "", heard.age_s)


def _claim(heard: LastHeard) -> Claim:
    return Claim(
        kind=LAST_TRACED_CALL,
        rests_on="traces",
        about=heard,
        victims=heard.ranks,
        subjects=(Subject("process", f"pid {heard.call.pid}", pid=heard.call.pid),),
        sites=(dataclasses.replace(_site(heard, "victim"), stack_id=stack_id(heard)),),
        doubts=(Doubt.ONE_MOMENT,),
    )
