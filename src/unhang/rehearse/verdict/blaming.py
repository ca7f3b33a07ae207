"""A finding whose culprits are others than the analysis could tell by the dumps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from unhang.report import Finding


def with_culprits(finding: Finding, culprits: Iterable[int]) -> Finding:
    """A finding with these culprits: its sites, its calls and who suffers follow.

    Returns:
        The finding as it is where there are none.
    """
    ranks = tuple(sorted(culprits))
    if not ranks:
        return finding
    called = (rank for call in finding.calls for rank in call.ranks)
    known = {*finding.culprits, *finding.victims, *called}
    return replace(
        finding,
        culprits=ranks,
        victims=tuple(sorted(known - set(ranks))),
        sites=tuple(replace(site, role=side_of(site.ranks, ranks)) for site in finding.sites),
        calls=tuple(replace(call, role=side_of(call.ranks, ranks)) for call in finding.calls),
    )


def side_of(ranks: Iterable[int], culprits: Iterable[int]) -> Literal["culprit", "victim"]:
    """What ranks are in a finding."""
    return "culprit" if set(ranks) & set(culprits) else "victim"
