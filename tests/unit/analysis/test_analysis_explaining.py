"""The table of what explains what: each edge holds where it should, and nowhere else."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from unhang.analysis.linking import linked
from unhang.analysis.rules.by_stacks import HOST_PROGRAM_STUCK
from unhang.analysis.rules.call_mismatch import OP_MISMATCH, SHAPE_MISMATCH
from unhang.analysis.rules.explaining import EXPLAINS, explained_by, following, without_empty
from unhang.analysis.rules.failed_alike import FailedAlike
from unhang.analysis.rules.idle import IDLE
from unhang.analysis.rules.never_joined import NEVER_JOINED
from unhang.analysis.rules.not_progressing import JOINED_NOT_PROGRESSING
from unhang.analysis.rules.rank_ended import RANK_ENDED
from unhang.analysis.rules.silent_rank import SILENT_RANK
from unhang.analysis.rules.starved import LATENESS
from unhang.analysis.shared.claims import Because, Claim, Reason
from unhang.kinds import Kind


def claim(kind: Kind, *culprits: int) -> Claim:
    """A claim; what it is about does not matter."""
    return Claim(kind=kind, about=FailedAlike(()), culprits=culprits)


@pytest.mark.parametrize(
    ("because", "ranks", "explained", "others"),
    [
        (
            Because.ENDED,
            {1, 2},
            [claim(NEVER_JOINED, 1), claim(OP_MISMATCH, 1, 2), claim(JOINED_NOT_PROGRESSING)],
            [claim(NEVER_JOINED, 1, 3), claim(OP_MISMATCH, 3), claim(OP_MISMATCH)],
        ),
        (
            Because.KILLED_ALIKE,
            {1, 2},
            [claim(NEVER_JOINED, 1), claim(JOINED_NOT_PROGRESSING)],
            [claim(OP_MISMATCH, 1, 2), claim(NEVER_JOINED, 1, 3)],
        ),
        (
            Because.GONE,
            {1, 2},
            [claim(NEVER_JOINED, 2), claim(SILENT_RANK, 1, 2)],
            [claim(OP_MISMATCH, 2), claim(HOST_PROGRAM_STUCK, 2)],
        ),
        (Because.CALLS_APART, {0}, [claim(RANK_ENDED, 5)], [claim(NEVER_JOINED, 5)]),
        (Because.GROUPS_APART, {0}, [claim(NEVER_JOINED, 5), claim(RANK_ENDED, 1)], []),
        (
            Because.FAILED,
            {1},
            [claim(NEVER_JOINED, 1, 3), claim(JOINED_NOT_PROGRESSING)],
            [claim(NEVER_JOINED, 3), claim(SHAPE_MISMATCH, 1)],
        ),
        (Because.FAILED_SOMEWHERE, (), [claim(SILENT_RANK, 4)], [claim(NEVER_JOINED, 4)]),
    ],
)
def test_a_reason_explains_what_can_come_of_it(
    because: Because, ranks: set[int], explained: list[Claim], others: list[Claim]
) -> None:
    """Of its ranks, and of the kinds that its edge names; nothing else, and no mere observation."""
    taken_back = [replace(each, role="observation") for each in explained]
    found = explained_by([*others, *explained, *taken_back], Reason(because, frozenset(ranks)))
    assert [id(each) for each in found] == [id(each) for each in explained]


def test_a_reason_of_its_own_brings_its_edges() -> None:
    """A rank that is short of a core is late; it has to be every rank that is waited for."""
    late = claim(NEVER_JOINED, 1)
    others = [claim(NEVER_JOINED, 1, 3), claim(JOINED_NOT_PROGRESSING), claim(OP_MISMATCH, 1)]
    own = Reason(Because.OWN, frozenset({1, 2}), (LATENESS,))
    assert [id(each) for each in explained_by([*others, late], own)] == [id(late)]
    assert explained_by([late], Reason(Because.OWN, frozenset({1, 2}))) == []


def test_every_reason_has_an_edge_and_every_edge_a_reason() -> None:
    """Nothing is explained outside of the table, but by what carries its own edges."""
    assert {edge.because for edge in EXPLAINS} == set(Because) - {Because.OWN}
    assert all(edge.why for edge in EXPLAINS)


def reason(kind: Kind, because: Because, *ranks: int) -> Claim:
    """A claim about ranks that may explain others."""
    return replace(claim(kind, *ranks), reasons=(Reason(because, frozenset(ranks)),))


def waited(kind: Kind, *culprits: int, victims: tuple[int, ...]) -> Claim:
    """A claim by which some wait."""
    return replace(claim(kind, *culprits), victims=victims)


@pytest.mark.parametrize("turned", [False, True])
def test_reasons_are_linked_in_their_own_order(*, turned: bool) -> None:
    """In whatever order rules tell: sizes end a rank, and the end explains who waits for it."""
    ended = reason(RANK_ENDED, Because.ENDED, 1)
    sizes = reason(SHAPE_MISMATCH, Because.CALLS_APART, 3)
    waits = waited(NEVER_JOINED, 1, victims=(0, 2))
    given = [waits, sizes, ended, claim(IDLE)]
    told = linked(reversed(given) if turned else given)
    kinds = {each.kind: [lead.kind for lead in each.caused_by] for each in told}
    assert kinds == {SHAPE_MISMATCH: [], RANK_ENDED: [SHAPE_MISMATCH], NEVER_JOINED: [RANK_ENDED]}
    assert next(each.victims for each in told if each.kind is RANK_ENDED) == (0, 2)
    assert next(each.victims for each in told if each.kind is SHAPE_MISMATCH) == ()


def test_what_is_a_consequence_explains_nothing_more() -> None:
    """Nor does a claim that has taken itself back; a reason that no claim tells of explains."""
    ended = reason(RANK_ENDED, Because.ENDED, 1)
    waits = claim(NEVER_JOINED, 1)
    taken_back = replace(ended, role="observation")
    assert linked([taken_back, waits]) == [taken_back, waits]
    (told,) = linked([ended], Reason(Because.CALLS_APART))
    assert (told.role, told.caused_by) == ("consequence", ())


def test_what_is_explained_follows() -> None:
    """It names its cause; what nothing explains stays as it is, in its place."""
    lead, waits, wrong = claim(RANK_ENDED, 1), claim(NEVER_JOINED, 1), claim(OP_MISMATCH, 3)
    told = following([waits, wrong], [waits], lead)
    assert [(each.role, each.caused_by) for each in told] == [
        ("consequence", (lead,)),
        ("cause", ()),
    ]
    assert without_empty([wrong, claim(IDLE)]) == [wrong]
