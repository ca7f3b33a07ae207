"""The one place where facts become sentences: from a claim to the finding that people read.

Each module beside this one holds the words of one family: for every type of `Claim.about` a
function that is registered with `words_for`, and for every type of observation one registered with
`adding_for` (both in `unhang.analysis.rules.telling`). Modules that register are imported here.
Standing sentences (what else it could be, what to do next, whatever the case) are the kind's, in
`unhang.kinds`. Nothing that is decided rests on anything said here.
"""

from __future__ import annotations

from collections.abc import Sequence

from unhang.analysis.claims import Claim, confidence_of
from unhang.analysis.rules.telling import all_words_of
from unhang.analysis.words import (  # noqa: F401 - they register
    exits,
    logs,
    reports,
    unexplained,
    unstuck,
)
from unhang.analysis.words.doubts import reasons_of, supports_of
from unhang.report import Finding

__all__ = ["all_words_of", "finding_of"]


def finding_of(claim: Claim, identifier: str = "", caused_by: Sequence[str] = ()) -> Finding:
    """Put a claim into words.

    Args:
        claim: What was found.
        identifier: Its number in the report ("f1"); given by the judgement alone.
        caused_by: Numbers of the findings that it follows from.
    """
    words = all_words_of(claim)
    return Finding(
        id=identifier,
        code=claim.kind.code,
        role=claim.role or claim.kind.role,
        confidence=confidence_of(claim),
        summary=words.summary,
        culprits=claim.culprits,
        victims=claim.victims,
        subjects=claim.subjects,
        group=claim.group,
        seq=claim.seq,
        op=claim.op,
        calls=claim.calls,
        waits=claim.waits,
        sites=claim.sites,
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
