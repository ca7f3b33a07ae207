"""Adds to findings from dumps what stacks show of their culprits: where they are, if they move.

Dumps say which call is missing, stacks say what its rank does instead. Where the two contradict
each other, both are told and the confidence falls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from unhang.analysis.sites import StackBook
from unhang.analysis.sources.looks import RankLook
from unhang.analysis.sources.stack_words import (
    MOVES,
    actions,
    doing,
    ranks_in,
    sentences,
    sites_of,
    subjects_of,
)
from unhang.report import Finding
from unhang.wording import rank_phrase

__all__ = ["with_stacks"]

_ABSENT = frozenset(("UH101", "UH103", "UH104", "UH302", "UH401"))
"""Findings that blame a rank for not being there yet."""


def with_stacks(
    findings: Sequence[Finding], looks: Mapping[int, RankLook], book: StackBook
) -> list[Finding]:
    """Add to findings from dumps where their ranks stand now, and whether stacks agree.

    A culprit that is seen waiting in a collective contradicts the dumps, unless those say that it
    waits too: the confidence falls to low, and both sides are told.
    """
    return [_joined(_placed(finding, looks, book), looks, book) for finding in findings]


def _placed(finding: Finding, looks: Mapping[int, RankLook], book: StackBook) -> Finding:
    """Show where victims wait, where their dumps came without the stacks of calls."""
    shown = {rank for site in finding.sites if site.role == "victim" for rank in site.ranks}
    bare = [looks[rank] for rank in finding.victims if rank in looks and rank not in shown]
    bare = [look for look in bare if look.waits or look.may_wait]
    if finding.role != "cause" or not bare:
        return finding
    return replace(finding, sites=(*finding.sites, *sites_of(bare, "victim", book)))


def _joined(finding: Finding, looks: Mapping[int, RankLook], book: StackBook) -> Finding:
    seen = [looks[rank] for rank in finding.culprits if rank in looks]
    own = [look for look in seen if look.frames or not look.unseen]
    if finding.role != "cause" or not own:
        return finding
    evidence = tuple(f"Stacks: {sentence}" for sentence in sentences(own))
    contrary = finding.code == "UH101" and all(look.waits for look in own)
    if contrary:
        evidence += ("Sources disagree: the dumps lack the call, the stack is inside one.",)
    moving = ranks_in(look for look in own if look.moves)
    finding = _stopped(_busy(finding, moving), own)
    placed = sites_of(own, "culprit", book)
    shown = {(site.ranks, site.stack_id) for site in placed}
    rest = [site for site in finding.sites if (site.ranks, site.stack_id) not in shown]
    return replace(
        finding,
        confidence="low" if contrary else finding.confidence,
        sites=(*placed, *rest),
        evidence=(*evidence, *finding.evidence),
        subjects=finding.subjects or subjects_of(own),
        actions=finding.actions if contrary else _merged(actions(own), finding.actions),
    )


def _busy(finding: Finding, moving: tuple[int, ...]) -> Finding:
    """Of ranks that work while others wait for them, nobody can say that they are stuck.

    A wrong call stays wrong while its rank works on, so only absence is doubted.
    """
    if not moving:
        return finding
    if finding.code not in _ABSENT:
        return replace(finding, moving=moving)
    verb = "moves" if len(moving) == 1 else "move"
    return replace(
        finding,
        moving=moving,
        confidence="low",
        summary=(
            f"{finding.summary.removesuffix('.')}; {rank_phrase(moving)} {verb}: busy, slow or "
            "late rather than stuck."
        ),
        alternatives=(*finding.alternatives, *MOVES),
    )


def _stopped(finding: Finding, looks: Sequence[RankLook]) -> Finding:
    """A rank without a dump because it was stopped is not dead: its state is known."""
    stopped = all(look.meaning.kind == "stopped" for look in looks)
    if finding.code != "UH103" or not stopped or ranks_in(looks) != finding.culprits:
        return finding
    call = finding.op or "a call"
    label = call if finding.seq is None else f"{call} #{finding.seq}"
    what = doing(looks)
    return replace(
        finding,
        confidence="high",
        summary=f"{what[:1].upper()}{what[1:]}, and nobody else is missing from {label}.",
        alternatives=(),
        actions=(),
    )


def _merged(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return (*first, *(text for text in second if text not in first))
