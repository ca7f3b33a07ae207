"""Calls whose members give up at different times: the first to do so looks like the culprit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from unhang.analysis.rules.telling import Words, subject, words_for
from unhang.analysis.shared.claims import Claim
from unhang.analysis.shared.situation import Situation
from unhang.kinds import Kind
from unhang.spans import distinct
from unhang.wording import rank_phrase

TIMEOUTS_DIFFER: Final = Kind(
    "UH403",
    "timeouts-differ",
    "environment",
    "Members of a call that does not move have different time-outs for it.",
    role="observation",
    actions=("Give init_process_group and new_group the same timeout on all ranks.",),
)


class Timeouts(Struct, frozen=True):
    """Time-outs of one call by the ranks that have them, shortest first; in seconds."""

    call: str
    ranks: tuple[tuple[float, tuple[int, ...]], ...]


def explain_timeouts(situation: Situation, calls: Iterable[int]) -> Iterator[Claim]:
    """Explain waiting calls whose members have different time-outs for them."""
    for call in calls:
        rows, columns = situation.waiting_rows(call), situation.evidence.case.calls
        limits, ranks = columns.timeout_ms[rows], columns.rank[rows]
        sides = tuple(
            (limit / 1000, tuple(sorted(ranks[limits == limit].tolist())))
            for limit in distinct(limits[limits > 0]).tolist()
        )
        if len(sides) > 1:
            yield Claim(
                kind=TIMEOUTS_DIFFER,
                about=Timeouts(situation.label(call), sides),
                group=situation.group_ref(call),
                seq=situation.seq(call),
                op=situation.op(call),
            )


@words_for(Timeouts)
def _verdict_of_timeouts(about: Timeouts, claim: Claim) -> Words:  # noqa: ARG001 - the facts say it all
    limits = "; ".join(f"{rank_phrase(ranks)}: {limit:,.0f} s" for limit, ranks in about.ranks)
    first = subject(about.ranks[0][1])
    verb = "gives" if len(about.ranks[0][1]) == 1 else "give"
    return Words(
        f"Members of {about.call} have different time-outs for it: {limits}.",
        (f"{first} {verb} up first; the errors of the others follow from that.",),
    )
