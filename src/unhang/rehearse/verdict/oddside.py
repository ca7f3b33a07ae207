"""Which of two equally large sides left the way that both went before.

Where one of two ranks saves under a condition, neither side is in the majority. But the line of
one is a line that the other never came to, and the line of the other is one that both have made
calls at: the first has turned off the common way. And where the job has more ranks than the group,
one side makes its calls line by line as all of these do, and the other does not. Where these
divide into the same two halves, each half is a side; and of two lines to which only one side came,
the one under a further condition is a turning off.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from unhang.rehearse.matching.parties import Frames, LivingRank, own_lines
from unhang.rehearse.matching.referee import Referee
from unhang.rehearse.verdict.blaming import with_culprits
from unhang.rehearse.verdict.conditions import conditions_of
from unhang.report import Finding
from unhang.wording import rank_phrase

_Words: TypeAlias = Callable[[Sequence[int], Sequence[int]], str]
_SIDES: Final = 2
_ALWAYS: Final = frozenset({"__name__ == '__main__'"})
_ENOUGH: Final = 2
"""Ranks outside of a group that show its way: one may be odd itself."""


def with_odd_side(finding: Finding, referee: Referee) -> Finding:
    """A disagreement of two sides without a culprit, with the side that turned off, if one did."""
    sides = _sides(finding, referee)
    if not sides:
        return finding
    others = _outside(sides, referee)
    odd = _odd(sides, lambda mine, theirs: _left(mine, others) and _keeps(theirs, others))
    evidence: _Words = functools.partial(_among, [process.rank for process in others])
    if len(others) < _ENOUGH or not odd:
        odd = _odd(sides, lambda mine, theirs: _turned_off(mine, [*theirs, *others]))
        evidence = _evidence
    if not odd and (halves := _halves(sides, others)):
        odd = _odd(halves, _went_further)
        evidence = _conditional
    if len(odd) != 1:
        return finding
    ranks = tuple(process.rank for process in odd[0])
    victims = tuple(sorted({r for call in finding.calls for r in call.ranks} - set(ranks)))
    return replace(
        with_culprits(finding, ranks),
        victims=victims,
        confidence="medium",
        confidence_reasons=("both sides are equally large",),
        evidence=(evidence(ranks, victims), *finding.evidence),
    )


def _sides(finding: Finding, referee: Referee) -> list[list[LivingRank]]:
    """The two sides, as ranks; none where a culprit is known, or they are not two alike."""
    if finding.role != "cause" or finding.family != "disagreement" or finding.culprits:
        return []
    sides = [[referee.ranks[r] for r in call.ranks if r in referee.ranks] for call in finding.calls]
    alike = len(sides) == _SIDES and len(sides[0]) == len(sides[1]) > 0
    return sides if alike else []


def _odd(
    sides: list[list[LivingRank]], is_odd: Callable[[list[LivingRank], list[LivingRank]], bool]
) -> list[list[LivingRank]]:
    return [mine for mine, theirs in (sides, sides[::-1]) if is_odd(mine, theirs)]


def _outside(sides: list[list[LivingRank]], referee: Referee) -> list[LivingRank]:
    """Ranks of the job that are on no side, and have made calls."""
    inside = {process.rank for side in sides for process in side}
    return [p for rank, p in referee.ranks.items() if rank not in inside and p.calls]


def _keeps(side: list[LivingRank], others: list[LivingRank]) -> bool:
    """Whether its calls are those of the others, line by line, as far as both went."""
    return all(_same_so_far(p, other) for p in side for other in others)


def _left(side: list[LivingRank], others: list[LivingRank]) -> bool:
    """Whether its calls have left the lines of every other rank."""
    return not any(_same_so_far(p, other) for p in side for other in others)


def _same_so_far(one: LivingRank, other: LivingRank) -> bool:
    return all(a == b for a, b in zip(_ways(one), _ways(other), strict=False))


def _turned_off(mine: list[LivingRank], theirs: list[LivingRank]) -> bool:
    """Whether one side stands where the other never was, and the other where both have been."""
    my_ways, their_ways = ({_ways(p)[-1] for p in side if p.calls} for side in (mine, theirs))
    before_mine = [set(_ways(p)[:-1]) for p in mine]
    before_theirs = [set(_ways(p)) for p in theirs]
    return (
        bool(my_ways and their_ways)
        and all(their_ways <= before for before in before_mine)
        and not any(my_ways & before for before in before_theirs)
        and any(map(_may_be_left_out, my_ways))
    )


def _halves(sides: list[list[LivingRank]], others: Sequence[LivingRank]) -> list[list[LivingRank]]:
    """The sides with all other ranks, each with the one whose way it goes; none if not so."""
    halves = [list(side) for side in sides]
    for other in others:
        homes = [n for n, side in enumerate(sides) if all(_same_so_far(p, other) for p in side)]
        if len(homes) != 1:
            return []
        halves[homes[0]].append(other)
    return halves if len(halves[0]) == len(halves[1]) else []


def _went_further(mine: list[LivingRank], theirs: list[LivingRank]) -> bool:
    """Whether one side stands under a condition, where the other never was.

    The other side is outside of that condition, or at a line where both have been.
    """
    my_ways, their_ways = ({_ways(p)[-1] for p in side if p.calls} for side in (mine, theirs))
    if len(my_ways) != 1 or len(their_ways) != 1:
        return False
    my_way, their_way = my_ways.pop(), their_ways.pop()
    if any(my_way in _ways(p) for p in theirs):
        return False
    known = all(their_way in _ways(p)[:-1] for p in mine) and _is_conditional(my_way)
    return known or _is_further_in(my_way[::-1], their_way[::-1])


def _is_conditional(way: Frames) -> bool:
    """Whether a line of a way is known to stand under a condition."""
    return any(set(conditions_of(file, line) or ()) - _ALWAYS for _, file, line in way)


def _is_further_in(mine: Frames, theirs: Frames) -> bool:
    """Of two ways from the outermost line in: whether one has conditions more after they part."""
    pairs = zip(mine, theirs, strict=False)
    at = next((n for n, (my, their) in enumerate(pairs) if my != their), None)
    if at is None or mine[at][:2] != theirs[at][:2]:
        return False
    my_ifs, their_ifs = _conditions_from(mine[at:]), _conditions_from(theirs[at:])
    if my_ifs is None or their_ifs is None:
        return False
    return len(my_ifs) > len(their_ifs) and my_ifs[: len(their_ifs)] == their_ifs


def _conditions_from(way: Frames) -> tuple[str, ...] | None:
    """All conditions on a way, from the outermost line in; None where a source is not there."""
    found = [conditions_of(file, line) for _, file, line in way]
    known = [each for each in found if each is not None]
    return tuple(c for each in known for c in each) if len(known) == len(found) else None


def _may_be_left_out(way: Frames) -> bool:
    """Whether a way stands under a condition: a line that stands under none is one to come to."""
    found = [conditions_of(file, line) for _, file, line in way]
    return any(each is None or set(each) - _ALWAYS for each in found)


def _ways(process: LivingRank) -> list[Frames]:
    """The script's own lines on the way to each call of a rank, in order."""
    return [own_lines(call.frames) for call in process.calls.values()]


def _evidence(odd: Sequence[int], others: Sequence[int]) -> str:
    who = f"{rank_phrase(odd).capitalize()} came to a line at which {rank_phrase(others)} made no"
    return f"{who} call; before it, both sides had made calls at the line of the other."


def _among(others: Sequence[int], odd: Sequence[int], victims: Sequence[int]) -> str:
    who = rank_phrase(victims).capitalize()
    text = f"{who} made calls line by line as {rank_phrase(others)} did, outside of this group; "
    return f"{text}{rank_phrase(odd)} left these lines."


def _conditional(odd: Sequence[int], others: Sequence[int]) -> str:
    who = f"{rank_phrase(odd).capitalize()} came to a line under a condition"
    return f"{who}, at which {rank_phrase(others)} made no call."
