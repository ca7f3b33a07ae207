"""Claims about a rank that left its own order of calls, while another waits in its usual one."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from unhang.analysis.divergence.rhythm import Break
from unhang.analysis.rules.p2p_unmatched import P2P_UNMATCHED
from unhang.analysis.rules.skipped_call import SKIPPED_CALL, CallAt, call_at, shown_call
from unhang.analysis.rules.telling import Words, subject, waits, words_for, words_of
from unhang.analysis.shared.claims import Claim, Doubt
from unhang.analysis.shared.situation import Situation
from unhang.wording import count_of

_OF_THE_NEXT_ITERATION = (
    "The same call of the next iteration is queued: this iteration's was skipped, not delayed."
)
_NEW = "It never made that call before: the others may each have had a reason to skip it."


class LeftOrder(Struct, frozen=True):
    """A rank that did not make, where it always had, the call in which another waits for it.

    Attributes:
        usual: The call.
        after: The call that it has always followed.
        times: How often.
        depth: How many calls it has followed so; `after` is the last of them.
        instead: What was called this time.
        later: It was called all the same, behind that.
        next_queued: It was not, but that of the next iteration is queued, in its usual place.
        period: All calls before were whole iterations of so many; 0 where that was not looked at.
        is_new: What it called instead it has never called before.
        in_step: How many such calls it made in this step, in each of `times` steps before, and how
            many its peer made in this one; None where steps were not counted.
        symptom: What is seen in the end.
    """

    usual: CallAt
    after: CallAt
    times: int
    depth: int
    instead: CallAt
    later: bool
    next_queued: bool
    period: int
    is_new: bool
    in_step: tuple[int, int, int] | None
    symptom: Claim


def explain_left_order(
    situation: Situation, left: Break, at: int, symptom: Claim, *, queued: bool
) -> Claim:
    """Explain a rank of a circle that left its own order.

    Args:
        situation: All that is known.
        left: Where it did.
        at: The waiting call of another rank that it keeps waiting.
        symptom: The circle.
        queued: It has made a call that meets the waiting one, later.
    """
    queued &= not left.made_more
    culprits, later = situation.named([left.rank]), queued and not left.left_out
    collective = not left.made_more and bool(situation.evidence.collective[left.usual])
    rows = np.asarray([left.instead], np.int64)
    waiting = situation.heads.row[situation.heads.inside(at)]
    return Claim(
        kind=symptom.kind if later else SKIPPED_CALL if collective else P2P_UNMATCHED,
        about=LeftOrder(
            usual=call_at(situation, left.usual, numbered=False),
            after=call_at(situation, left.after, numbered=False),
            times=left.times,
            depth=left.depth,
            instead=call_at(situation, left.instead),
            later=later,
            next_queued=queued and not later,
            period=left.period,
            is_new=left.is_new,
            in_step=left.in_step,
            symptom=symptom,
        ),
        culprits=culprits,
        victims=tuple(rank for rank in symptom.victims if rank not in culprits),
        group=situation.group_ref(at),
        seq=situation.seq(at),
        op=situation.op(at),
        calls=(
            *situation.sides_by_row(rows, "culprit"),
            *situation.sides_by_row(waiting, "victim"),
        ),
        waits=symptom.waits,
        sites=(
            *situation.book.sites_of_rows(rows, "culprit"),
            *situation.book.sites_of_rows(waiting, "victim"),
        ),
        doubts=(Doubt.ONE_ITERATION if left.period and left.times == 1 else Doubt.BY_HABIT,),
    )


@words_for(LeftOrder)
def _verdict_of_left_order(about: LeftOrder, claim: Claim) -> Words:
    return Words(
        f"{subject(claim.culprits)} {_departure(about)}; {waits(claim.victims)} for it.",
        (
            _usual_place(about),
            *((_OF_THE_NEXT_ITERATION,) if about.next_queued else ()),
            f"The final symptom: {words_of(about.symptom.about, about.symptom).summary}",
            "The others wait in their usual order.",
        ),
        alternatives=(
            *((_NEW,) if about.is_new else ()),
            "The program may change its order here on purpose, and the others did not follow.",
        ),
    )


def _departure(about: LeftOrder) -> str:
    usual, instead = shown_call(about.usual), shown_call(about.instead)
    if about.in_step is not None and (more := about.in_step[0] - about.in_step[1]) > 0:
        return f"made {count_of(more, 'call')} too many, {instead}, where {usual} came before"
    what = f"made {usual} later than ever" if about.later else f"did not make {usual}"
    return f"{what}, and went on with {instead}"


def _usual_place(about: LeftOrder) -> str:
    """Why that call was due."""
    if about.in_step is not None:
        made, usual, asked = about.in_step
        return (
            f"In this step, between two collectives, it made {count_of(made, 'call')} that "
            f"{'meets' if made == 1 else 'meet'} its peer's, and its peer made {asked}; in "
            f"{count_of(about.times, 'earlier step')} it always made {usual}."
        )
    if about.period:
        rounds, calls = count_of(about.times, "iteration"), count_of(about.period, "call")
        return f"Its calls were {rounds} of {calls} each; this call was next."
    after = f"{shown_call(about.after)}{_and_before(about.depth)}"
    return f"It followed {after} every time before ({count_of(about.times, 'time')})."


def _and_before(depth: int) -> str:
    return f" and the {count_of(depth - 1, 'call')} before it" if depth > 1 else ""
