"""Ranks that wait in a call while most wait at a meeting that dumps do not hold."""

from __future__ import annotations

from typing import Final

from unhang.analysis.lives.life import Lives
from unhang.analysis.lives.whereabouts import Shape, Sides
from unhang.analysis.rules.by_stacks import claim_of
from unhang.analysis.rules.never_joined import NEVER_JOINED
from unhang.analysis.rules.skipped_call import SKIPPED_CALL
from unhang.analysis.shared.claims import Claim
from unhang.analysis.shared.sites import StackBook
from unhang.model import Frame
from unhang.stacks.ownership import under

_UNRECORDED: Final = "ray/train/"
"""Where ranks wait for all others in no call of torch's."""


def other_meeting(symptom: Claim, lives: Lives, book: StackBook) -> Claim:
    """That the few have not come to a meeting, where stacks show it; else what dumps show.

    Most wait at a meeting that dumps do not hold, and few in a call of torch's.

    Such meetings are those of Ray Train, and the making of groups. Each side waits for the other;
    as with unlike calls, most are right. To the dumps the few are ahead, by a call that the others
    never made, or made too many. Where the others work, they may only be late for that call.
    """
    ahead = {NEVER_JOINED: symptom.victims, SKIPPED_CALL: symptom.culprits}.get(symptom.kind, ())
    few = tuple(look for look in lives.looks_at(ahead) if look.waits or look.may_wait)
    own = tuple(lives.looks_at(sorted({*symptom.culprits, *symptom.victims} - {*ahead})))
    meet = all(look.meaning.kind == "init" or _is_unrecorded(look.meaning.frame) for look in own)
    if not few or len(few) < len(ahead):
        return symptom
    if symptom.kind is SKIPPED_CALL and own and all(look.moves for look in own):
        return claim_of(Sides(Shape.ABSENT, own, few, own, (), 0), book)  # they may yet come
    apart = meet and len(own) > len(few)
    return claim_of(Sides(Shape.ABSENT, few, own, few, (), 0), book) if apart else symptom


def _is_unrecorded(frame: Frame | None) -> bool:
    return frame is not None and under(frame.file, _UNRECORDED)
