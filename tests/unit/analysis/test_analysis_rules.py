"""Rules read facts: who is missed, and which functions of rules still take claims of others."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from msgspec.structs import replace

from unhang.analysis.linking import INSTEAD, told_instead, with_first
from unhang.analysis.lives.life import lives_of
from unhang.analysis.rules import order
from unhang.analysis.rules.call_mismatch import SHAPE_MISMATCH
from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.failed_alike import FailedAlike
from unhang.analysis.rules.idle import IDLE
from unhang.analysis.rules.membership_mismatch import MEMBERSHIP_MISMATCH
from unhang.analysis.rules.never_joined import NEVER_JOINED
from unhang.analysis.rules.rank_ended import RANK_ENDED
from unhang.analysis.rules.rule import Rule, Unless, When
from unhang.analysis.rules.silent_rank import SILENT_RANK
from unhang.analysis.shared.claims import Bearing, Because, Claim, Observation, Reason
from unhang.analysis.shared.sites import StackBook
from unhang.analysis.steps import situation_of
from unhang.case import Case
from unhang.kinds import INSUFFICIENT_EVIDENCE, Kind
from unhang.testing import FakeJob, sample_of

ANALYSIS = Path("src/unhang/analysis")
RULES = ("divergence", "findings", "lives", "matching", "sources", "state")
SEE_OTHERS = {
    "besides": "what follows from the lead names it",
}
"""Functions of rules that are given claims, and why. May only shrink."""


def takes_claims(path: Path) -> list[str]:
    """Functions that are given several claims."""
    functions = [f for f in ast.walk(ast.parse(path.read_text())) if isinstance(f, ast.FunctionDef)]
    given = {
        each.name: [ast.unparse(arg.annotation) for arg in each.args.args if arg.annotation]
        for each in functions
    }
    return [name for name, kinds in given.items() if any("[Claim]" in kind for kind in kinds)]


def test_no_rule_sees_what_others_claim() -> None:
    """Only the linking does: it applies one table to all."""
    files = [path for folder in RULES for path in (ANALYSIS / folder).glob("*.py")]
    listed = {"order", "explaining"}  # the list of the rules, and the edges that they share
    declared = [path for path in (ANALYSIS / "rules").glob("*.py") if path.stem not in listed]
    public = {
        name
        for path in (*files, *declared)
        for name in takes_claims(path)
        if not name.startswith("_")
    }
    assert public <= SEE_OTHERS.keys()
    above = (
        "analysis.linking",
        "analysis.rules",
        "analysis.rules.explaining",
        "analysis.rules.case_facts",
    )
    assert [
        p for p in files if any(f"from unhang.{each} " in p.read_text() for each in above)
    ] == []


def facts_of(case: Case) -> CaseFacts:
    """What is known of a case."""
    situation, _ = situation_of(case)
    return CaseFacts(case, lives_of(case), StackBook(case), situation if case.dumps else None)


def test_who_is_missed_is_told_by_dumps() -> None:
    """A rank that waits itself is not: whom it waits for is."""
    job = FakeJob(4)
    job.call(range(4), "all_reduce")
    job.call([0, 1, 2], "all_reduce", finished=False)
    assert facts_of(job.case()).missed == {3: frozenset({0, 1, 2})}
    done = FakeJob(2)
    done.call(range(2), "all_reduce")
    assert facts_of(done.case()).missed == {}


def test_who_is_missed_is_told_by_stacks() -> None:
    """Where there are no dumps."""
    torch = "/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"
    waits = f"{torch}:3245 all_reduce < train.py:30 step"
    samples = [sample_of(0, waits), sample_of(1, waits), sample_of(2, "data.py:9 load")]
    job = FakeJob(3)
    job.missing = {0, 1, 2}
    assert facts_of(job.case(samples=samples)).missed == {2: frozenset({0, 1})}


def claim(kind: Kind, *culprits: int, because: Because | None = None) -> Claim:
    """A claim; what it is about does not matter."""
    reasons = () if because is None else (Reason(because, frozenset(culprits)),)
    return Claim(kind=kind, about=FailedAlike(()), culprits=culprits, reasons=reasons)


GROUPS = Claim(
    kind=MEMBERSHIP_MISMATCH, about=0, rests_on="stacks", reasons=(Reason(Because.GROUPS_APART),)
)
SIZES = Claim(
    kind=SHAPE_MISMATCH, about=0, rests_on="stacks", reasons=(Reason(Because.CALLS_APART),)
)
STACKS = Claim(kind=NEVER_JOINED, about=0, rests_on="stacks")


@pytest.mark.parametrize(
    ("told", "left_out", "kept"),
    [(GROUPS, STACKS, claim(NEVER_JOINED, 1)), (SIZES, claim(SHAPE_MISMATCH, 1), STACKS)],
)
def test_the_claim_that_says_more_is_told(told: Claim, left_out: Claim, kept: Claim) -> None:
    """And only beside it the other is left out."""
    assert told_instead([left_out, told, kept]) == [told, kept]
    assert told_instead([left_out, kept]) == [left_out, kept]
    assert all(row.why for row in INSTEAD)


class Line(Observation, frozen=True, kw_only=True):
    """A line of a log."""


def failure(*culprits: int) -> Claim:
    """A failure by the logs."""
    reasons = (Reason(Because.FAILED, frozenset(culprits)),)
    about = Line(source="logs")
    return Claim(kind=IDLE, role="cause", about=about, culprits=culprits, reasons=reasons)


def test_the_first_failure_that_explains_leads() -> None:
    """Else the earliest, beside what is known; alone it is the cause."""
    early, fits = failure(5), failure(1)
    lead, waits = with_first([claim(NEVER_JOINED, 1)], [early, fits])
    assert (lead.culprits, lead.role, waits.role) == ((1,), "cause", "consequence")
    waits, beside = with_first([claim(NEVER_JOINED, 2)], [early, fits])
    assert (beside.culprits, beside.role, waits.role) == ((5,), "observation", "cause")
    assert with_first([], [early, fits]) == [early]
    assert with_first([STACKS], []) == [STACKS]


def test_another_rank_that_ended_keeps_a_failure_from_leading() -> None:
    """What only a log tells is no reason then; and its own end tells it already."""
    ended, other = claim(RANK_ENDED, 3), failure(1)
    told = with_first([claim(NEVER_JOINED, 1), ended], [other])
    assert [each.role for each in told] == ["cause", "cause", "observation"]
    known = claim(RANK_ENDED, 1).seen(other.about, Bearing.TELLS_THE_END)
    assert with_first([known, claim(SILENT_RANK, 2)], [other]) == [known, claim(SILENT_RANK, 2)]


@pytest.mark.parametrize(
    ("unless", "given", "is_asked"),
    [
        (Unless.CAUSE, [claim(NEVER_JOINED, 1)], False),
        (Unless.CAUSE, [claim(IDLE)], True),
        (Unless.CLAIM, [claim(IDLE)], False),
        (Unless.CLAIM, [], True),
        (Unless.ANSWER, [claim(IDLE)], False),
        (Unless.ANSWER, [claim(INSUFFICIENT_EVIDENCE)], True),
    ],
)
def test_a_weak_rule_is_asked_while_its_question_is_open(
    *, unless: Unless, given: list[Claim], is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it finds stands before the rest."""
    job = FakeJob(2)
    job.call(range(2), "all_reduce")
    monkeypatch.setattr(order, "RULES", [Rule(tells=lambda _: [GUESS], unless=unless)])
    facts = facts_of(job.case())
    assert order.asked(given, facts, When.OTHERS) == ([GUESS, *given] if is_asked else given)
    assert order.asked(given, facts, When.LOGS) == given


def test_what_is_told_in_any_case_leads_where_it_is_a_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An observation stands behind the rest."""
    beside = replace(GUESS, role="observation")
    monkeypatch.setattr(order, "RULES", [Rule(tells=lambda _: [beside, GUESS])])
    job = FakeJob(2)
    job.call(range(2), "all_reduce")
    assert order.asked([STACKS], facts_of(job.case()), When.OTHERS) == [GUESS, STACKS, beside]


GUESS = claim(SILENT_RANK, 7)
