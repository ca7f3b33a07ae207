"""Marks, sums, and the reading of peers' output."""

from __future__ import annotations

import pytest

from lab.score.accuracy import as_json, as_markdown, as_text
from lab.score.adapters import in_child, read_fr_attribution, read_torchfrtrace, verdict_of
from lab.score.running import Result, tally
from lab.score.verdict import CONFIDENCES, Blame, Verdict, judge
from lab.score.versions import by_version
from lab.truth import Cause, Point, Truth
from unhang.report import Finding, GroupRef, Report, Site, to_json

STOPPED = Truth(
    ("problem",), (Cause(("UH101",), (3,), points=(Point("0", "dp", 7, "/a/train.py", 9),)),), 8
)
HEALTHY = Truth(("healthy",), (), 8, ("UH601",))


def verdict(*ranks: int, code: str = "UH101", status: str = "problem") -> Verdict:
    """One finding that names some ranks."""
    shown = (Point("0", "dp", 7), Point("", "", -1, "/a/train.py", 9))
    return Verdict(status, (Blame(code, frozenset(ranks), shown, "high"),))


def test_a_right_verdict() -> None:
    """Everything is right."""
    mark = judge(STOPPED, verdict(3))
    assert (mark.exact, mark.code, mark.site, mark.call) == (True, True, True, True)
    assert not mark.overconfident


def test_an_innocent_named_with_confidence() -> None:
    """The worst mark."""
    mark = judge(STOPPED, verdict(3, 4))
    assert (mark.exact, mark.named, mark.guilty, mark.overconfident) == (False, 2, 1, True)


@pytest.mark.parametrize("said", [verdict(1), verdict(), verdict(2, status="slow")])
def test_false_alarms(said: Verdict) -> None:
    """Nothing is wrong with a healthy job."""
    assert judge(HEALTHY, said).false_alarm
    assert not judge(HEALTHY, Verdict("healthy")).false_alarm


def test_giving_up() -> None:
    """Right where the files do not suffice, and only there."""
    assert judge(STOPPED, Verdict("insufficient")).gave_up
    lost = Truth(("insufficient",), (Cause(("UH901",)),), 8)
    mark = judge(lost, Verdict("insufficient"))
    assert (mark.exact, mark.code, mark.gave_up) == (True, True, False)


def test_a_silent_tool_is_not_right_about_a_loop() -> None:
    """Naming nobody is right only together with the status."""
    loop = Truth(("problem",), (Cause(("UH301",)),), 8)
    assert not judge(loop, Verdict("healthy")).exact
    assert judge(loop, verdict(code="UH301")).exact


def test_reports_are_read_by_their_causes() -> None:
    """Consequences and observations accuse nobody."""
    group = GroupRef("0", "dp", 8)
    site = Site((3,), "culprit", "/a/train.py", 9, "step")
    report = Report(
        "problem",
        "rank 3",
        findings=(
            Finding("f1", "UH101", "cause", "high", "", (3,), group=group, seq=7, sites=(site,)),
            Finding("f2", "UH302", "consequence", "high", "", (5,)),
        ),
    )
    assert judge(STOPPED, verdict_of(to_json(report))).site
    assert verdict_of(to_json(report)).named == {3}


MISSING = """Not all ranks joining collective, sequence number: 3
internal record id: 2
group info: 0:default_pg
collective: nccl:all_reduce
missing ranks: {3, 5}
collective stack trace:
 all_reduce at /torch/distributed_c10d.py:3245
train_step at /a/train.py:17
Not all ranks joining collective, sequence number: 4
group info: 1:dp
missing ranks: {6}
"""


def test_torchfrtrace_names_its_first_block() -> None:
    """Later blocks are mostly consequences: the kindest reading leaves them out."""
    said = read_torchfrtrace(MISSING)
    assert said.named == {3, 5}
    assert Point("0", "default_pg", 3) in said.blames[0].points
    assert Point("", "", -1, "/a/train.py", 17) in said.blames[0].points


def test_torchfrtrace_mismatch() -> None:
    """Its kinds of errors have nearest codes."""
    text = (
        "Collective sequence number: 4 has errors\ninternal record id: 1\ngroup info: 0:dp\n"
        "error msg: Culprit rank 2; Error type: COLLECTIVE_DTYPE_MISMATCH, x\n"
    )
    said = read_torchfrtrace(text)
    assert (said.named, said.blames[0].code) == (frozenset({2}), "UH203")


def test_torchfrtrace_says_nothing() -> None:
    """Silence is "healthy"; being undecided is "insufficient"."""
    assert read_torchfrtrace("").status == "healthy"
    assert read_torchfrtrace("We cannot decide what's wrong").status == "insufficient"


def test_fr_attribution_table() -> None:
    """All rows of the last table of missing ranks; one of completed ranks names nobody."""
    head = "PGID | Process Group Desc | Op Type | Size | Dtype | {} Ranks\n"
    row = "5    | TP_GROUP           | AG      | 4    | BF16  | 9, 14\n"
    assert read_fr_attribution(head.format("Missing") + row).named == {9, 14}
    other = "INFO:main:6 | DP_GROUP | AR | 4 | BF16 | 9\nINFO:main: done\n7 | A | B | C | D | 3\n"
    assert read_fr_attribution(head.format("Missing") + row + other).named == {9, 14}
    last = head.format("Missing") + other
    assert read_fr_attribution(head.format("Missing") + row + last).named == {9}
    assert read_fr_attribution(head.format("Completed") + row).status == "healthy"


def test_peers_that_crash_or_hang_are_contained() -> None:
    """Their failure is a result."""

    def crash() -> None:
        raise ValueError("no")

    def hang() -> None:
        while True:
            pass

    text, failure = in_child(crash, 5.0)
    assert "ValueError: no" in text
    assert failure
    assert "not finished" in in_child(hang, 0.2)[1]
    assert in_child(lambda: None, 5.0) == ("", "")


def results() -> list[Result]:
    """Three cases, two tools."""
    right, wrong = verdict(3), verdict(4)
    nothing = Verdict("healthy")
    return [
        Result("tuned/a-0", "a", "ddp", 8, "plain", STOPPED, {"unhang": right, "peer": nothing}),
        Result("tuned/a-1", "a", "ddp", 8, "plain", STOPPED, {"unhang": wrong, "peer": wrong}),
        Result("tuned/b-0", "b", "ddp", 8, "plain", HEALTHY, {"unhang": nothing, "peer": right}),
    ]


def test_sums() -> None:
    """Counts of marks."""
    score = tally(results(), "unhang")
    assert (score.cases, score.exact, score.named, score.guilty) == (3, 2, 2, 1)
    assert (score.healthy, score.false_alarms, score.wrong) == (1, 0, ["tuned/a-1"])
    assert tally(results(), "peer").false_alarms == 1


def test_confidence_is_counted_by_cause() -> None:
    """A cause is right with an accepted code and no innocent among those that it names."""
    two = Truth(("problem",), (Cause(("UH101",), (3, 5)), Cause(("UH301",))), 8)
    said = Verdict(
        "problem",
        (
            Blame("UH101", frozenset({5}), confidence="high"),
            Blame("UH101", frozenset({3, 4}), confidence="high"),
            Blame("UH101", confidence="medium"),
            Blame("UH301", confidence="medium"),
            Blame("UH202", frozenset({3}), confidence="low"),
        ),
    )
    assert [right for _, _, right in judge(two, said).claims] == [True, False, False, True, False]
    score = tally([Result("tuned/a-0", "a", "ddp", 8, "plain", two, {"unhang": said})], "unhang")
    assert [score.reliability(name) for name in CONFIDENCES] == [(1, 2), (1, 2), (0, 1)]


def test_the_page_says_what_a_confidence_is_worth() -> None:
    """A row for each confidence, a column for each part, and the kinds that were wrong."""
    page = as_markdown({"tuned": results(), "held-out": results()})
    assert "| high | 99 % | 50.0 % of 2 | 50.0 % of 2 |" in page
    assert "| medium | 85 % | none | none |" in page
    assert page.count("Reported wrongly: UH101 (1 of 2 with high confidence).") == 1


def test_parts_that_were_not_scored_again_stay() -> None:
    """Neither they nor what other commands have put there are lost."""
    page = as_markdown({"tuned": results(), "held-out": results()}) + "\n## Of others\n\nx\n"
    assert as_markdown({}, page) == page
    again = as_markdown({"tuned": results()[:1], "real": results()}, page)
    assert [line for line in again.splitlines() if line.startswith("## ")] == [
        "## How much a confidence is worth", "## Tuned part", "## Held-out part", "## Of others",
        "## Real part",
    ]  # fmt: skip
    assert "| confidence | wanted | tuned | held-out | real |" in again
    assert "| cases | 1 | 1 |" in again


def test_pages_show_all_tools_and_hide_held_out_cases() -> None:
    """Single cases of the held-out part are nobody's business."""
    parts = {"tuned": results(), "held-out": results()}
    page = as_markdown(parts)
    assert "| exact culprit set | 66.7 % | 0.0 % |" in page
    assert page.count("`tuned/a-1`") == 1
    assert "not installed: torchfrtrace, fr_attribution." in page
    assert "peer" in as_text(parts)
    assert page.count("by class") == 1
    assert not {"wrong", "classes"} & set(as_json(parts)["held-out"]["unhang"])


def test_the_real_part_by_version() -> None:
    """Oldest first, by number; dumps with timing are a row of their own."""
    rows = [
        Result(f"real/{version}/stall-asked", "stall", "real", 8, "nccl", STOPPED, {"unhang": said})
        for version, said in (
            ("2.13.0", verdict(3)),
            ("2.9.1", verdict(4)),
            ("2.9.1-timing", verdict(3)),
            ("2.13.0", verdict(4)),
        )
    ]
    rows.append(
        Result("real/2.13.0/ok", "none", "real", 8, "nccl", HEALTHY, {"unhang": verdict(1)})
    )
    table = by_version(rows).splitlines()[-3:]
    assert table == [
        "| 2.9.1 | 1 | 0 | 1 | 0 of 0 |",
        "| 2.9.1, with timing | 1 | 1 | 1 | 0 of 0 |",
        "| 2.13.0 | 3 | 1 | 2 | 1 of 1 |",
    ]
