"""What a page draws says what the report says, for every captured hang and some simulated ones."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from agreement import unfolded

from lab.simulate.corpus import CaseSpec
from lab.simulate.writing import simulate
from unhang.analysis import diagnose
from unhang.analysis.picture import picture_of
from unhang.analysis.picture.bandwidth import rates
from unhang.analysis.steps import situation_of
from unhang.case import Case
from unhang.ingest import load
from unhang.picture import Picture
from unhang.report import Report, to_json
from unhang.reports import render
from unhang.reports.content.brief import brief_of

EXAMPLES = sorted(path.parent for path in Path("examples").glob("*/truth.json"))
SIMULATED = {
    "circle": CaseSpec("circle", "crossed-groups", "hsdp", 16, "plain", 0),
    "pipeline": CaseSpec("pipeline", "pipeline-stall", "megatron", 64, "plain", 0),
    "stages": CaseSpec("stages", "never-joined", "megatron", 64, "plain", 0),
    "slow": CaseSpec("slow", "late-rank", "ddp", 8, "plain", 0),
    "skipped": CaseSpec("skipped", "skipped-call", "tp", 8, "plain", 0),
    "shape": CaseSpec("shape", "wrong-shape", "fsdp", 8, "plain", 0),
    "silent": CaseSpec("silent", "never-joined", "ddp", 8, "culprit-missing", 0),
}
NAMES = [*(path.name for path in EXAMPLES), *SIMULATED]


class Drawn(NamedTuple):
    """A case with what was made of it."""

    case: Case
    report: Report
    picture: Picture


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where simulated jobs are written."""
    return tmp_path_factory.mktemp("jobs")


@cache
def drawn(name: str, folder: Path) -> Drawn:
    """Read, judge and draw one case."""
    if name in SIMULATED:
        simulate(SIMULATED[name], folder / name)
        case = load([folder / name])
    else:
        case = load([Path("examples") / name])
    report = diagnose(case)
    return Drawn(case, report, picture_of(case, report))


def test_the_culprit_stands_beside_those_who_wait_for_it(folder: Path) -> None:
    """The first lanes are those of the verdict's call, however many others there are."""
    _, report, picture = drawn("stages", folder)
    first, second = picture.lanes[:2]
    assert first.ranks == report.findings[0].culprits
    assert set(second.ranks) <= set(report.findings[0].victims)


@pytest.mark.parametrize("name", NAMES)
def test_calls_of_one_group_stand_by_their_numbers(name: str, folder: Path) -> None:
    """Also where ranks of different stages are at numbers far from each other."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for column in drawn(name, folder).picture.columns:
        if not column.p2p:
            numbers[column.label].append(column.number)
    assert {label: own for label, own in numbers.items() if own != sorted(own)} == {}


@pytest.mark.parametrize("name", NAMES)
def test_the_graph_blames_whom_the_report_blames(name: str, folder: Path) -> None:
    """Every node of ranks has one status, the report's, and every culprit is there."""
    _, report, picture = drawn(name, folder)
    status = {each.rank: each.status for each in report.ranks}
    drawn_ranks = [node for node in picture.nodes if node.kind == "ranks"]
    for node in drawn_ranks:
        if len({status[rank] for rank in node.ranks}) == 1:
            assert node.status == status[node.ranks[0]]
    shown = {rank for node in drawn_ranks if node.status == "culprit" for rank in node.ranks}
    assert shown == {rank for rank, each in status.items() if each == "culprit"}


@pytest.mark.parametrize("name", NAMES)
def test_who_waits_is_in_the_call_of_its_head(name: str, folder: Path) -> None:
    """The calls hold exactly the ranks that have a head, under its name."""
    _, report, picture = drawn(name, folder)
    heads = {each.rank: each.head for each in report.ranks if each.head}
    inside = {rank: node for node in picture.nodes if node.kind == "call" for rank in node.ranks}
    further = {r for n in picture.nodes if n.kind == "ranks" for r in n.ranks}
    assert set(heads) <= set(inside) | further
    assert set(inside) <= set(heads)
    for rank, node in inside.items():
        if node.count == 1:
            assert node.label == heads[rank]


@pytest.mark.parametrize("name", NAMES)
def test_waiting_goes_down_but_in_circles(name: str, folder: Path) -> None:
    """Waiting goes from level to lower level, but inside a circle that the report tells."""
    _, report, picture = drawn(name, folder)
    nodes = picture.nodes
    for link in picture.links:
        source, target = nodes[link.source], nodes[link.target]
        assert source.level > target.level or (source.ring and target.ring)
    circles = any(finding.family == "deadlock" for finding in report.findings)
    if circles and nodes:
        ring = {rank for node in nodes if node.ring for rank in node.ranks}
        loop = next(f.waits for f in report.findings if f.family == "deadlock")
        assert {wait.waiter for wait in loop} <= ring


@pytest.mark.parametrize("name", NAMES)
def test_calls_are_finished_where_the_analysis_says_so(name: str, folder: Path) -> None:
    """An open cell or bar belongs to a rank with a head; each rank with calls has one lane.

    A rank waits in one collective: others that it made, and that are not finished, are pending.
    """
    case, report, picture = drawn(name, folder)
    heads = {each.rank for each in report.ranks if each.head}
    for lane in picture.lanes:
        if any(cell.state in ("open", "failed") for cell in lane.cells):
            assert set(lane.ranks) <= heads
        waited = [c for c in lane.cells if c.state == "open" and not picture.columns[c.column].p2p]
        assert len(waited) <= 1
    ranks = [rank for lane in picture.lanes for rank in lane.ranks]
    assert sorted(ranks) == sorted({d.rank for d in case.dumps if d.usable and d.stop > d.start})
    situation, _ = situation_of(case)
    unfinished = int((~situation.evidence.finished).sum())
    assert sum(bar.state != "finished" for bar in picture.bars) <= unfinished
    assert {bar.rank for bar in picture.bars if bar.state == "open"} <= heads


@pytest.mark.parametrize("name", ["never-joined", "skipped-call", "pipeline", "silent"])
def test_the_call_of_the_verdict_is_marked(name: str, folder: Path) -> None:
    """Exactly one column is marked, and those who wait in it are open there."""
    _, report, picture = drawn(name, folder)
    finding = report.findings[0]
    (marked,) = [at for at, column in enumerate(picture.columns) if column.marked]
    assert picture.columns[marked].number == finding.seq
    state = {
        rank: cell.state
        for lane in picture.lanes
        for cell in lane.cells
        if cell.column == marked
        for rank in lane.ranks
    }
    if finding.code == "UH101":
        assert {state.get(rank) for rank in finding.culprits} <= {"missing"}
        assert any(value == "open" for value in state.values())


@pytest.mark.parametrize("name", NAMES)
def test_the_row_of_the_verdict_is_of_its_group_alone(name: str, folder: Path) -> None:
    """Of groups of one kind, ranks of another one have no part in the call."""
    case, report, picture = drawn(name, folder)
    finding = report.findings[0] if report.findings else None
    if finding is None or finding.group is None or finding.seq is None:
        return
    told = {rank for side in finding.calls for rank in side.ranks} or set(finding.culprits)
    ref = (finding.group.name, finding.group.description)
    members = {
        rank
        for group in case.groups
        if (group.name, group.description) == ref and not told.isdisjoint(group.members)
        for rank in group.members
    }
    marked = [at for at, column in enumerate(picture.columns) if column.marked]
    cells = {
        r for lane in picture.lanes for c in lane.cells if c.column in marked for r in lane.ranks
    }
    assert cells
    assert cells <= members


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_missed_where_nothing_is_wrong(name: str, folder: Path) -> None:
    """A call is told to be missing or unlike the others only where a cause says so."""
    case, report, picture = drawn(name, folder)
    blamed = {f.group.description for f in report.causes if f.group}
    blamed |= {side.group.description for f in report.causes for side in f.calls if side.group}
    for lane in picture.lanes:
        assert report.causes or not any(cell.state == "missing" for cell in lane.cells)
        odd = [picture.columns[cell.column].label for cell in lane.cells if cell.odd]
        assert all(any(label.startswith(each) for each in blamed) for label in odd)
    del case


@pytest.mark.parametrize("name", NAMES)
def test_the_call_of_the_verdict_is_in_the_graph(name: str, folder: Path) -> None:
    """By itself, however many calls are folded."""
    _, report, picture = drawn(name, folder)
    finding = report.findings[0] if report.findings else None
    if finding is None or finding.role != "cause" or finding.seq is None or not picture.nodes:
        return
    told = f"{finding.op} #{finding.seq} of"
    heads = {each.rank: each.head for each in report.ranks}
    inside = {rank for side in finding.calls for rank in side.ranks if heads[rank].startswith(told)}
    calls = [node for node in picture.nodes if node.kind == "call" and node.count == 1]
    assert not inside or any(n.label.startswith(told) and inside & set(n.ranks) for n in calls)


def test_the_call_that_the_culprit_lacks_first_is_named(folder: Path) -> None:
    """The last stage waits in a call of all ranks, which the culprit's peers have queued too."""
    _, report, _ = drawn("pipeline", folder)
    finding = report.findings[0]
    assert finding.group is not None
    assert finding.group.description == "TENSOR_MODEL_PARALLEL_GROUP"
    assert {rank for side in finding.calls for rank in side.ranks} == set(range(40, 48))


@pytest.mark.parametrize("name", NAMES)
def test_who_is_told_to_wait_waits_on_the_map(name: str, folder: Path) -> None:
    """No row of the report names a rank as waiting that the map of ranks shows at rest."""
    _, report, _ = drawn(name, folder)
    at_rest = {each.rank for each in report.ranks if each.status in ("ok", "idle")}
    told = [items for label, items in brief_of(report).rows if label == "waiting"]
    ranks = " ".join(items[0].split(" in ")[0] for items in told)
    named = re.findall(r"\d+(?:-\d+(?::\d+)?)?", ranks)
    assert not {rank for each in named for rank in unfolded(each)} & at_rest


def test_of_no_rank_it_is_said_that_it_is_well_where_nothing_is_known() -> None:
    """The map of a report without enough evidence."""
    report = diagnose(load([Path("examples/p2p-cycle")]))
    assert report.status == "insufficient"
    assert {each.status for each in report.ranks} == {"unknown"}


def test_an_odd_size_is_marked(folder: Path) -> None:
    """Of members that disagree, those that most others are unlike are marked."""
    _, report, picture = drawn("wrong-shape", folder)
    odd = {r for lane in picture.lanes for cell in lane.cells if cell.odd for r in lane.ranks}
    assert odd == set(report.culprits)


def test_lateness_shows_who_is_late(folder: Path) -> None:
    """The culprit of a slow job has the largest median."""
    _, report, picture = drawn("slow", folder)
    heat = picture.heat
    assert heat is not None
    medians = {
        rank: sorted(row)[len(row) // 2] for rank, row in zip(heat.ranks, heat.late_ms, strict=True)
    }
    assert max(medians, key=lambda rank: medians[rank]) in report.findings[0].culprits


@pytest.mark.parametrize("name", NAMES)
def test_it_can_be_written(name: str, folder: Path) -> None:
    """Nothing of numpy, no NaN, and a graph that a person can read."""
    case, report, picture = drawn(name, folder)
    json.dumps(to_json(picture), allow_nan=False)
    assert len(picture.nodes) <= 30
    assert render("html", report, case, None, picture).endswith("</html>\n")


def test_without_calls_there_is_nothing_to_draw() -> None:
    """A case of logs alone has a page, and no picture."""
    case = Case()
    picture = picture_of(case, diagnose(case))
    assert (picture.nodes, picture.lanes, picture.bars, picture.heat) == ((), (), (), None)


def test_bandwidths_are_those_of_calls_that_all_have_timed(tmp_path: Path) -> None:
    """The shortest time of the members, and nccl-tests' share of the data; here by hand."""
    simulate(CaseSpec("timed", "late-rank", "fsdp", 8, "timing", 0), tmp_path / "job")
    case = load([tmp_path / "job"])
    rate = rates(case)[0]
    calls = case.calls
    ops = [case.names[name].op for name in calls.name.tolist()]
    sizes = [case.signatures[each].output_sizes[0][0] * 2 for each in calls.signature.tolist()]
    times: dict[int, float] = {}
    for seq, op, size, ms in zip(calls.seq, ops, sizes, calls.duration_ms, strict=True):
        if op == "_all_gather_base" and f"{size:.1e}" == f"{rate.size:.1e}":
            times[seq] = min(times.get(seq, ms), ms)
    assert (rate.op, rate.calls, rate.size) == ("all_gather_base", len(times), max(sizes))
    assert rate.ms == pytest.approx(np.median(list(times.values())), abs=0.001)
    assert rate.bus_gb_s == pytest.approx(rate.size * 7 / 8 / rate.ms / 1e6, rel=0.05)
    assert "How fast data moved" in render(
        "html", diagnose(case), case, None, Picture((), rates=(rate,))
    )


def test_without_times_there_is_no_bandwidth(folder: Path) -> None:
    """Nothing is guessed from when calls were made."""
    assert all(drawn(name, folder).picture.rates == () for name in NAMES)
