"""Adds to findings from dumps what stacks show of their culprits: where they are, if they move.

Dumps say which call is missing, stacks say what its rank does instead. Where the two contradict
each other, both are told and the confidence falls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from unhang.analysis.lookouts import RankLook
from unhang.analysis.sites import StackBook
from unhang.analysis.stackwords import actions, sentences, sites_of, subjects_of
from unhang.report import Finding

__all__ = ["with_stacks"]


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


def _merged(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return (*first, *(text for text in second if text not in first))
