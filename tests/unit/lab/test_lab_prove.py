"""The exhaustive checker: a sample of small programs with every mistake, and its own parts."""

from __future__ import annotations

from lab.prove.checks import falsehoods, judge_case
from lab.prove.endstates import case_of, end_state, members_of
from lab.prove.explain import can_explain
from lab.prove.plan import chunks
from lab.prove.programs import Deviation, Program, StepCall, shapes, steps_of
from lab.prove.sweep import Tally, judge_worlds, worlds_of
from lab.prove.table import as_markdown
from lab.sections import in_page

THREE = (((0, 1, 2),),)
STEP = (StepCall(0, 0), StepCall(0, 1))
WRONG = ("false sentence", "false alarm", "missed", "innocent")


def test_a_sample_of_all_programs() -> None:
    """No sentence is false, no innocent is blamed, nothing is overseen."""
    tally = Tally()
    for shape, programs in chunks(every=900, long_steps=0, seed=3):
        judge_worlds(worlds_of(shape, programs), tally)
    assert tally.counts["hangs"] > 500
    assert [
        (f.what, f.detail, f.program, f.deviation) for f in tally.faults if f.what in WRONG
    ] == []
    wrong = tally.counts["wrong name"] + tally.counts["not named"]
    assert wrong <= 0.08 * tally.counts["named"]


def test_kinds_of_shapes() -> None:
    """Shapes that differ in the names of ranks are one; each step stands for its like."""
    assert len(shapes(2, 3)) == 1
    pairs = (((0, 1),),)
    assert sum(alike for _, alike in steps_of(pairs, 2, 1)) == 9
    assert len(list(steps_of(pairs, 2, 1))) == 5


def test_who_may_have_led_to_dumps() -> None:
    """One of three who is missing from a call stopped; of two who disagree, both may be wrong."""
    groups = members_of(THREE)
    stopped = end_state(Program(THREE, STEP, "ahead", 1, 0), Deviation(1, 0, "stopped"))
    assert [rank for rank in range(3) if can_explain(groups, stopped, rank)] == [1]
    pair = (((0, 1),),)
    sizes = end_state(Program(pair, STEP, "blocking", 1, 0), Deviation(1, 0, "other-size"))
    assert [rank for rank in range(2) if can_explain(members_of(pair), sizes, rank)] == [0, 1]


def test_a_false_sentence_is_found() -> None:
    """A claim that is held against other dumps than its own contradicts them."""
    program = Program(THREE, STEP, "ahead", 1, 0)
    verdict = judge_case(case_of(THREE, end_state(program, Deviation(1, 0, "stopped"))))
    healthy = end_state(program, None)
    assert not falsehoods(end_state(program, Deviation(1, 0, "stopped")), verdict, ["0"])
    assert falsehoods(healthy, verdict, ["0"])


def test_the_section_takes_the_place_of_the_older_one() -> None:
    """What stands around it stays."""
    tally = Tally()
    tally.counts.update({"programs": 7, "named": 3})
    text = in_page("# A\n\n## B\n\nb\n", as_markdown(tally.counts))
    tally.counts["programs"] = 8
    again = in_page(text + "\n## C\n", as_markdown(tally.counts))
    assert again.startswith("# A\n\n## B\n\nb\n\n")
    assert "| programs | 8 |" in again
    assert "| programs | 7 |" not in again
    assert again.endswith("\n\n## C\n")
