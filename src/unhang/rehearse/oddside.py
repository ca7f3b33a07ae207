"""Which of two equally large sides left the way that both went before.

Where one of two ranks saves under a condition, neither side is in the majority. But the line of
one is a line that the other never came to, and the line of the other is one that both have made
calls at: the first has turned off the common way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from unhang.model import Frame
from unhang.rehearse.parties import Frames, LivingRank
from unhang.rehearse.referee import Referee
from unhang.report import Finding, Site
from unhang.stacks.ownership import is_library
from unhang.wording import rank_phrase

__all__ = ["with_odd_side"]

_Way: TypeAlias = tuple[tuple[str, str, int], ...]
_SIDES: Final = 2


def with_odd_side(finding: Finding, referee: Referee) -> Finding:
    """A disagreement of two sides without a culprit, with the side that turned off, if one did."""
    sides = _sides(finding, referee)
    odd = (
        [mine for mine, theirs in (sides, sides[::-1]) if _turned_off(mine, theirs)]
        if sides
        else []
    )
    if len(odd) != 1:
        return finding
    ranks = tuple(process.rank for process in odd[0])
    victims = tuple(sorted({r for call in finding.calls for r in call.ranks} - set(ranks)))
    return replace(
        finding,
        culprits=ranks,
        victims=victims,
        confidence="medium",
        confidence_reasons=("both sides are equally large",),
        sites=tuple(_with_role(site, ranks) for site in finding.sites),
        calls=tuple(
            replace(call, role="culprit" if set(call.ranks) & set(ranks) else "victim")
            for call in finding.calls
        ),
        evidence=(_evidence(ranks, victims), *finding.evidence),
    )


def _sides(finding: Finding, referee: Referee) -> list[list[LivingRank]]:
    """The two sides, as ranks; none where a culprit is known, or they are not two alike."""
    if finding.role != "cause" or finding.family != "disagreement" or finding.culprits:
        return []
    sides = [[referee.ranks[r] for r in call.ranks if r in referee.ranks] for call in finding.calls]
    alike = len(sides) == _SIDES and len(sides[0]) == len(sides[1]) > 0
    return sides if alike else []


def _turned_off(mine: list[LivingRank], theirs: list[LivingRank]) -> bool:
    """Whether one side stands where the other never was, and the other where both have been."""
    my_ways, their_ways = ({_ways(p)[-1] for p in side if p.calls} for side in (mine, theirs))
    before_mine = [set(_ways(p)[:-1]) for p in mine]
    before_theirs = [set(_ways(p)) for p in theirs]
    return (
        bool(my_ways and their_ways)
        and all(their_ways <= before for before in before_mine)
        and not any(my_ways & before for before in before_theirs)
    )


def _ways(process: LivingRank) -> list[_Way]:
    """The script's own lines on the way to each call of a rank, in order."""
    return [_own(call.frames) for call in process.calls.values()]


def _own(frames: Frames) -> _Way:
    return tuple(frame for frame in frames if not is_library(Frame(*frame)))


def _evidence(odd: Sequence[int], others: Sequence[int]) -> str:
    who = f"{rank_phrase(odd).capitalize()} came to a line at which {rank_phrase(others)} made no"
    return f"{who} call; before it, both sides had made calls at the line of the other."


def _with_role(site: Site, culprits: Iterable[int]) -> Site:
    return replace(site, role="culprit" if set(site.ranks) & set(culprits) else "victim")
