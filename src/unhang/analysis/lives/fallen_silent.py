"""Where culprits were last heard of, by traces; where nobody is blamed, who fell silent first."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from msgspec.structs import replace

from unhang.analysis.claims import Claim, Doubt, Stance
from unhang.analysis.lives.life import Lives
from unhang.analysis.sources.traces import LastHeard
from unhang.kinds import LAST_TRACED_CALL
from unhang.model import Frame
from unhang.report import Site, Subject

__all__ = ["fallen_silent", "stack_id", "stacks_heard"]

_MOST = 8


def fallen_silent(claims: Sequence[Claim], lives: Lives) -> list[Claim]:
    """Add to claims what traces show.

    Args:
        claims: From all that the job left behind, causes first.
        lives: Where each process was last heard of.
    """
    if any(claim.is_cause for claim in claims):
        return [_placed(claim, lives) if claim.is_cause else claim for claim in claims]
    return [*(_claim(heard) for heard in lives.heard if heard.is_silent), *claims]


def _placed(claim: Claim, lives: Lives) -> Claim:
    """A cause with what its culprits did last, by their traces."""
    own = [h for h in lives.heard if h.call.rank in claim.culprits][:_MOST]
    known = {rank for site in claim.sites if site.role == "culprit" for rank in site.ranks}
    sites = [
        _site(heard, "culprit")
        for heard in own
        if heard.call.open_calls and heard.call.rank not in known
    ]
    for heard in reversed(own):  # each is told before what was told already
        claim = claim.seen(heard, Stance.BESIDE)
    return replace(claim, sites=(*sites, *claim.sites))


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
        about=heard,
        victims=heard.ranks,
        subjects=(Subject("process", f"pid {heard.call.pid}", pid=heard.call.pid),),
        sites=(dataclasses.replace(_site(heard, "victim"), stack_id=stack_id(heard)),),
        doubts=(Doubt.ONE_MOMENT,),
    )
