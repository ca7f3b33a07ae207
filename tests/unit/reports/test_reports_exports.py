"""What other programs read: brief JSON, JSON lines, DOT, Perfetto's trace."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from case_samples import stuck_case
from report_samples import SAMPLES, hostile

from unhang.analysis import diagnose
from unhang.analysis.picture import picture_of
from unhang.case import Case
from unhang.casedir.place import Place
from unhang.ingest import load
from unhang.report import Report
from unhang.reports import render, with_steps
from unhang.reports.briefjson import LIMIT
from unhang.wording import parse_ranks

EXAMPLES = sorted(path.parent for path in Path("examples").glob("*/truth.json"))


def judged(path: Path) -> tuple[Case, Report]:
    """A captured hang and its report."""
    case = load([path])
    return case, with_steps(diagnose(case), case, Place(case=(str(path),)))


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_brief_is_small(name: str) -> None:
    """Whatever the report holds: at most 2 KiB, in ASCII, on one line."""
    page = render("brief-json", with_steps(SAMPLES[name](), stuck_case(), Place(("d" * 900,))))
    assert len(page.encode("ascii")) <= LIMIT
    assert page.count("\n") == 1
    assert json.loads(page)["status"] == SAMPLES[name]().status


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_a_script_has_what_it_takes_to_act(path: Path) -> None:
    """Status, decision, code and culprits are those of the whole report."""
    _, report = judged(path)
    brief = json.loads(render("brief-json", report))
    decision = report.decision
    assert brief["status"] == report.status
    assert brief["decision"]["action"] == (decision.action if decision else None)
    first = report.findings[0]
    told = parse_ranks(brief["culprits"]) if brief["culprits"] else frozenset()
    blamed = report.culprits or first.culprits
    assert (brief["code"], told) == (first.code, frozenset(blamed))
    assert brief["next"] == [step.command for step in report.next[:4]]


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_each_line_is_an_object(name: str) -> None:
    """As many lines as there are findings, ranks and notes, and one for the report."""
    report = SAMPLES[name]()
    lines = [json.loads(line) for line in render("jsonl", report).splitlines()]
    assert Counter(line["type"] for line in lines) == Counter(
        report=1, finding=len(report.findings), rank=len(report.ranks), note=len(report.notes)
    )


def trace_of(path: Path) -> list[dict[str, Any]]:
    """The events of a trace for Perfetto."""
    case, report = judged(path)
    picture = picture_of(case, report, every=True)
    return list(json.loads(render("perfetto", report, case, None, picture))["traceEvents"])


def test_perfetto_has_a_track_for_each_rank_and_group() -> None:
    """Every call is a slice on a named track, by the rules of the format."""
    events = trace_of(Path("examples/crossed-order"))
    case, _ = judged(Path("examples/crossed-order"))
    slices = [event for event in events if event["ph"] == "X" and event["cat"] != "late"]
    assert len(slices) == len(case.calls)
    names = {(e["pid"], e["tid"]) for e in events if e.get("name") == "thread_name"}
    assert {(event["pid"], event["tid"]) for event in slices} == names
    assert all(event["ts"] >= 0 and event["dur"] > 0 for event in slices)
    assert {event["pid"] for event in slices} == {0, 1, 2, 3}


def test_arrows_go_from_who_came_last_to_who_waited() -> None:
    """Both ends of a flow lie at one moment, inside slices of one collective."""
    events = trace_of(Path("examples/late-rank"))
    ends: dict[int, dict[str, dict[str, Any]]] = defaultdict(dict)
    for event in events:
        if event["ph"] in "sf":
            ends[event["id"]][event["ph"]] = event
    assert ends
    assert all(set(pair) == {"s", "f"} for pair in ends.values())
    assert all(pair["s"]["ts"] == pair["f"]["ts"] for pair in ends.values())
    sources = Counter(pair["s"]["pid"] for pair in ends.values())
    _, report = judged(Path("examples/late-rank"))
    assert sources.most_common(1)[0][0] in report.findings[0].culprits


@pytest.mark.parametrize(
    "path",
    [*EXAMPLES, *sorted(Path("tests/data/nccl/2.13.0").glob("*_stall-asked.tar.gz"))],
    ids=lambda path: path.name,
)
def test_every_arrow_begins_and_ends_in_a_slice(path: Path) -> None:
    """Perfetto binds an arrow to the slice around its end, and drops those that have none."""
    events = trace_of(path)
    slices = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for event in events:
        if event["ph"] in "sf":
            around = slices[event["pid"], event["tid"]]
            moment = event["ts"]
            assert any(begin <= moment <= end + 0.01 for begin, end in around), event


def test_open_calls_last_until_the_end() -> None:
    """Who waits in a hang is drawn as waiting, to the newest sign of life."""
    slices = [event for event in trace_of(Path("examples/wrong-op")) if event["ph"] == "X"]
    ends = [e["ts"] + e["dur"] for e in slices if e["cat"] == "open"]
    assert max(ends) - min(ends) < 2
    assert min(ends) + 2 >= max(e["ts"] for e in slices)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_dot_has_the_nodes_of_the_page(path: Path) -> None:
    """One node statement for each node of the picture, one edge for each link."""
    case, report = judged(path)
    picture = picture_of(case, report)
    text = render("dot", report, case, None, picture)
    assert len(re.findall(r"^  n\d+ \[", text, re.MULTILINE)) == len(picture.nodes)
    assert text.count(" -> ") == len(picture.links)


def test_dot_of_hostile_names_is_one_graph() -> None:
    """A quote in a name ends no string, nor does a backslash before it."""
    text = render("dot", Report("problem", 'a "b" \\" ] c'))
    assert re.sub(r'"(?:[^"\\]|\\.)*"', "", text).count('"') == 0
    assert render("dot", hostile()).count("\n") == text.count("\n")
