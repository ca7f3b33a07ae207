"""Where culprits left the way of the others, if the line of the call is one that all come to.

A forward pass that rank 0 makes alone, under its condition, gathers at a line of the model that
every rank comes to. What differs is who called it: the script's lines further out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

from unhang.model import Frame
from unhang.rehearse.matching.parties import Frames, LivingRank
from unhang.rehearse.matching.referee import Referee
from unhang.report import Finding, Site
from unhang.stacks.ownership import is_library
from unhang.wording import printable, rank_phrase

_Way: TypeAlias = tuple[Frame, ...]
"""A script's own frames, outermost first."""
_MOST: Final = 4
"""Lines that are named; the outermost ones, which tell most."""


def with_parting(finding: Finding, referee: Referee) -> Finding:
    """A finding with the lines by which its culprits came where the others came by other ones."""
    culprits = [r for r in finding.culprits if r in referee.ranks]
    others = {r for call in finding.calls for r in call.ranks} | set(finding.victims)
    others = {r for r in others - set(culprits) if r in referee.ranks}
    mine = {_way(finding, referee.ranks[rank]) for rank in culprits}
    theirs = {_way(finding, referee.ranks[rank]) for rank in others}
    if len(mine) != 1 or not theirs:
        return finding
    way = mine.pop()
    at = max(_common(way, other) for other in theirs)
    apart = way[at:-1]
    if not apart:  # the line of the call is where they part, and is named already
        return finding
    sites = (Site(tuple(culprits), "culprit", f.file, f.line, f.function) for f in apart[:_MOST])
    evidence = (_sentence(culprits, apart[:_MOST], sorted(others), _next(theirs, at)),)
    return replace(finding, sites=(*finding.sites, *sites), evidence=(*evidence, *finding.evidence))


def with_waiting_lines(finding: Finding, referee: Referee) -> Finding:
    """A finding with the lines at which its ranks wait, poll or ended, where no site has them."""
    roles: dict[int, str] = dict.fromkeys(finding.culprits, "culprit")
    for site in finding.sites:
        roles.update(dict.fromkeys(site.ranks, site.role))
    told = {(site.file, site.line) for site in finding.sites}
    places: dict[tuple[str, Frame], list[int]] = {}
    for rank, role in sorted(roles.items()):
        process = referee.ranks.get(rank)
        ended = process is not None and process.code is not None
        frame = _own(process.error_frames if ended else process.place)[-1:] if process else ()
        if frame and (frame[0].file, frame[0].line) not in told:
            places.setdefault((role, frame[0]), []).append(rank)
    sites = (
        Site(tuple(ranks), role, frame.file, frame.line, frame.function)
        for (role, frame), ranks in list(places.items())[:_MOST]
    )
    return replace(finding, sites=(*finding.sites, *sites))


def _way(finding: Finding, process: LivingRank) -> _Way:
    """How a rank came to the call in question; else to where it waits, or made its last call."""
    name = finding.group.name if finding.group else None
    here = [
        call.frames
        for call in process.calls.values()
        if call.circle.name == name and call.seq == finding.seq and call.told["peer"] < 0
    ]
    last = [call.frames for call in list(process.calls.values())[-1:]]
    places = [*here, *([process.place] if process.waits else []), *last]
    return _own(places[0]) if places else ()


def _own(frames: Frames) -> _Way:
    made = (Frame(*frame) for frame in reversed(frames))
    return tuple(frame for frame in made if not is_library(frame))


def _common(mine: _Way, theirs: _Way) -> int:
    """How many of their outermost lines are the same."""
    alike = 0
    for one, other in zip(mine, theirs, strict=False):
        if one != other:
            break
        alike += 1
    return alike


def _next(ways: Iterable[_Way], at: int) -> list[Frame]:
    """The lines at which the others went on instead."""
    return sorted({way[at] for way in ways if len(way) > at}, key=lambda frame: frame.line)


def _sentence(
    culprits: Sequence[int], apart: Sequence[Frame], others: Sequence[int], instead: Sequence[Frame]
) -> str:
    who = rank_phrase(culprits).capitalize()
    text = f"{who} came there by {_lines(apart)}"
    return f"{text}; {rank_phrase(others)} by {_lines(instead[:_MOST])}." if instead else f"{text}."


def _lines(frames: Sequence[Frame]) -> str:
    return ", ".join(
        printable(f"{Path(frame.file).name}:{frame.line} in {frame.function}") for frame in frames
    )
