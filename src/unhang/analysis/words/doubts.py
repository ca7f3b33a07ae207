"""Why a finding is as sure as it is, in words of its case: what lowered it, what raised it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from unhang.analysis.lives.whereabouts import Pausing
from unhang.analysis.shared.claims import Claim, Doubt, Observation, Source, Stance, doubts_left
from unhang.analysis.sources.reports import Told
from unhang.model import short_name
from unhang.report import GroupRef
from unhang.wording import printable, rank_phrase

_SAYS: Final[dict[Source, str]] = {
    "dumps": "the dumps say",
    "stacks": "the stacks say",
    "exits": "how the processes ended says",
    "logs": "the log says",
    "traces": "the traced calls say",
    "cores": "the core files say",
    "reports": "another report says",
    "ras": "NCCL's RAS says",
}


def reasons_of(claim: Claim) -> tuple[str, ...]:
    """What lowered the confidence of a claim, the gravest first; empty where it is high."""
    return tuple(dict.fromkeys((*_doubts(claim), *_contradictions(claim))))


def supports_of(claim: Claim) -> tuple[str, ...]:
    """What raised the confidence of a claim, the heaviest first: other sources that say the same.

    A support of no weight adds evidence and makes nothing surer: it is left out.
    """
    found = [w for w in claim.weighed if w.bearing.stance is Stance.SUPPORTS and w.bearing.weight]
    heaviest = sorted(found, key=lambda each: -each.bearing.weight)
    return tuple(dict.fromkeys(_same(each.observation) for each in heaviest))


def _same(seen: Observation) -> str:
    whose = f" ({rank_phrase(seen.ranks)})" if seen.ranks else ""
    if isinstance(seen, Told):
        return f"another report supports it: {seen.finding.code} {printable(seen.finding.slug, 60)}"
    return f"{_SAYS[seen.source]} the same{whose}"


def _doubts(claim: Claim) -> Iterator[str]:
    for doubt in doubts_left(claim):
        pause = _pause(claim) if doubt is Doubt.PAUSES else ""
        yield pause or doubt.meaning.format_map(_names(claim))


def _contradictions(claim: Claim) -> Iterator[str]:
    for each in claim.weighed:
        if each.bearing.stance is Stance.CONTRADICTS:
            yield f"{_SAYS[each.observation.source]} otherwise"


def _names(claim: Claim) -> dict[str, str]:
    """What the names in a doubt's meaning stand for, in this claim."""
    call = claim.op or "the call"
    return {
        "culprits": rank_phrase(claim.culprits) if claim.culprits else "the ranks in question",
        "call": call if claim.seq is None or not claim.op else f"{call} #{claim.seq}",
        "group": _label(claim.group) if claim.group else "the group",
    }


def _label(group: GroupRef) -> str:
    """As calls name it: "tp (1)"."""
    if group.description in ("", "undefined"):
        return f"group {short_name(group.name)}"
    return f"{group.description} ({short_name(group.name)})"


def _pause(claim: Claim) -> str:
    """For how long the ranks have stood still, compared with the time that a pause may take."""
    seen = (each.observation for each in claim.weighed)
    pause = next((each for each in seen if isinstance(each, Pausing)), None)
    if pause is None or pause.grace_s <= 0:
        return ""
    return f"blocked for {pause.for_s:.0f} s, less than --grace {pause.grace_s:g} s"
