"""Traces for Perfetto, read by Perfetto's own trace processor."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trace_processor import TraceProcessor, trace_processor

from lab.simulate.corpus import CaseSpec
from lab.simulate.writing import simulate
from unhang.analysis import diagnose
from unhang.analysis.picture import picture_of
from unhang.ingest import load
from unhang.report import Report
from unhang.reports import render

pytestmark = pytest.mark.debian("chromium")

ROOT = Path(__file__).parents[2]
CAPTURED = {
    "late": ROOT / "examples" / "late-rank",
    "crossed": ROOT / "examples" / "crossed-order",
    "pairs": ROOT / "examples" / "p2p-cycle-armed",
    "overlapping": ROOT / "examples" / "healthy",
    "nccl": ROOT / "tests" / "data" / "nccl" / "2.13.0" / "ddp_stall-asked.tar.gz",
}
SIMULATED = {
    "queued": CaseSpec("queued", "crossed-groups", "hsdp", 16, "plain", 0),
    "slow": CaseSpec("slow", "late-rank", "ddp", 8, "plain", 0),
}

COMPLAINTS = "SELECT name, value FROM stats WHERE value > 0 AND severity IN ('error', 'data_loss')"
TRACKS = """SELECT pid, process.name AS p, thread.name AS t, slice.name AS s, category AS c,
ts, dur, depth FROM slice JOIN thread_track ON track_id = thread_track.id
JOIN thread USING (utid) JOIN process USING (upid)"""
ARROWS = """SELECT a.name AS a, whole.name AS b, ap.pid AS ap, bp.pid AS bp FROM flow
JOIN slice a ON slice_out = a.id JOIN thread_track at ON a.track_id = at.id
JOIN thread ath ON at.utid = ath.utid JOIN process ap ON ath.upid = ap.upid
JOIN slice b ON slice_in = b.id JOIN slice whole ON b.parent_id = whole.id
JOIN thread_track bt ON b.track_id = bt.id
JOIN thread bth ON bt.utid = bth.utid JOIN process bp ON bth.upid = bp.upid"""


@pytest.fixture(scope="module")
def perfetto() -> Iterator[TraceProcessor]:
    """The trace processor."""
    with trace_processor() as found:
        yield found


def written(path: Path) -> tuple[Report, str]:
    """A case's report, and its trace as `--format perfetto` writes it."""
    case = load([path])
    report = diagnose(case)
    return report, render("perfetto", report, case, None, picture_of(case, report, every=True))


def expected(events: list[dict[str, Any]]) -> tuple[Counter[Any], Counter[Any]]:
    """Slices with their tracks, and arrows, as the trace's text has them."""
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"
             and e["name"] in ("process_name", "thread_name")}  # fmt: skip
    start = min(e["ts"] for e in events if e["ph"] == "X")
    slices = Counter(
        (e["pid"], names[e["pid"], 0], names[e["pid"], e["tid"]], e["name"], e["cat"],
         (e["ts"] - start) * 1000, e["dur"] * 1000, int(e["cat"] == "late"))
        for e in events if e["ph"] == "X"
    )  # fmt: skip
    begins = {e["id"]: e["pid"] for e in events if e["ph"] == "s"}
    arrows = Counter((begins[e["id"]], e["pid"]) for e in events if e["ph"] == "f")
    return slices, arrows


@pytest.mark.parametrize("name", [*CAPTURED, *SIMULATED])
def test_perfetto_takes_everything(perfetto: TraceProcessor, tmp_path: Path, name: str) -> None:
    """Every call on its track, every arrow within a collective; nothing is dropped."""
    if name in SIMULATED:
        simulate(SIMULATED[name], tmp_path / name)
    report, trace = written(CAPTURED.get(name, tmp_path / name))
    slices, arrows = expected(json.loads(trace)["traceEvents"])
    complaints, tracks, flows = perfetto.ask(trace, COMPLAINTS, TRACKS, ARROWS)
    assert complaints == []
    start = min(row[5] for row in tracks)
    assert Counter((*row[:5], row[5] - start, *row[6:]) for row in tracks) == slices
    assert all(begins == within for begins, within, *_ in flows)
    assert Counter((source, target) for *_, source, target in flows) == arrows
    if name == "late":
        ((source, _), _), *_ = arrows.most_common()
        assert source in report.findings[0].culprits


def test_it_would_say_if_something_were_wrong(perfetto: TraceProcessor) -> None:
    """Calls that overlap on one track, an arrow without an end: these it complains about."""
    events = [{"ph": "X", "pid": 1, "tid": 1, "ts": ts, "dur": 10, "name": "x"} for ts in (0, 5)]
    events.append({"ph": "f", "bp": "e", "pid": 1, "tid": 1, "ts": 2, "id": 7, "name": "y"})
    (complaints,) = perfetto.ask(json.dumps({"traceEvents": events}), COMPLAINTS)
    assert "slice_drop_overlapping_complete_event" in dict(complaints)
