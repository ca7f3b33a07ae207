"""The one place where a claim becomes the finding that people read.

Its words are those of the file of its finding (`unhang.analysis.rules`), registered by the type of
what it is about. Standing sentences (what else it could be, what to do next, whatever the case) are
the kind's. Nothing that is decided rests on anything said here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from unhang.analysis.rules.telling import all_words_of
from unhang.analysis.shared.claims import Claim, confidence_of
from unhang.analysis.words.doubts import reasons_of, supports_of
from unhang.report import CallSide, Finding, Site, Subject

__all__ = ["all_words_of", "finding_of"]


def finding_of(claim: Claim, identifier: str = "", caused_by: Sequence[str] = ()) -> Finding:
    """Put a claim into words.

    Args:
        claim: What was found.
        identifier: Its number in the report ("f1"); given by the judgement alone.
        caused_by: Numbers of the findings that it follows from.
    """
    words = all_words_of(claim)
    links = frozenset(claim.links)
    return Finding(
        id=identifier,
        code=claim.kind.code,
        role=claim.role or claim.kind.role,
        confidence=confidence_of(claim),
        summary=words.summary,
        culprits=tuple(rank for rank in claim.culprits if rank not in links),
        victims=tuple(sorted({*claim.victims, *links})),
        subjects=_subjects(claim, links),
        group=claim.group,
        seq=claim.seq,
        op=claim.op,
        calls=tuple(_as_waiting(side, links) for side in claim.calls),
        waits=claim.waits,
        sites=tuple(_as_waiting(site, links) for site in claim.sites),
        evidence=words.evidence,
        alternatives=words.alternatives or (),
        actions=words.actions or (),
        caused_by=tuple(caused_by),
        slug=claim.kind.slug,
        moving=claim.moving,
        pausing=claim.pausing,
        confidence_reasons=reasons_of(claim),
        confidence_supports=supports_of(claim),
    )


_Sided = TypeVar("_Sided", CallSide, Site)


def _as_waiting(side: _Sided, links: frozenset[int]) -> _Sided:
    """The side of ranks that only wait for something outside is none of culprits."""
    linked = side.role == "culprit" and bool(links) and links.issuperset(side.ranks)
    return replace(side, role="victim") if linked else side


def _subjects(claim: Claim, links: frozenset[int]) -> tuple[Subject, ...]:
    """Whom it is about: first who is asked, where ranks wait for an answer from outside."""
    own = (each for each in claim.subjects if each.rank not in links)
    return (*(each for w in claim.weighed for each in w.observation.asked), *own)
