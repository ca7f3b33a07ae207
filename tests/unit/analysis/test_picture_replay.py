"""The replay: where ranks were before they stood still, from the times of their calls."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st

from lab.simulate.corpus import CaseSpec
from lab.simulate.writing import simulate
from unhang.analysis import diagnose
from unhang.analysis.picture import picture_of
from unhang.errors import UsageError
from unhang.ingest import load
from unhang.picture import Replay
from unhang.report import Report
from unhang.reports import render


def replayed(place: Path) -> tuple[Report, Replay | None]:
    """A verdict and what was before it."""
    case = load([place])
    report = diagnose(case)
    return report, picture_of(case, report).replay


def contradictions(report: Report, replay: Replay) -> list[str]:
    """Where its last moment says otherwise than the verdict, or a moment takes something back."""
    last = dict(zip([each.rank for each in report.ranks], replay.states[-1], strict=True))
    wrong = [
        f"rank {each.rank} waits, and is {last[each.rank]}"
        for each in report.ranks
        if each.status == "waiting" and last[each.rank] not in "w?"
    ]
    for at, (one, other) in enumerate(zip(replay.states, replay.states[1:], strict=False)):
        left = [rank for rank, a, b in zip(last, one, other, strict=True) if a == "w" != b]
        wrong += [f"ranks {left} left at moment {at} what never ends"] if left else []
    if list(replay.since_ms) != sorted(replay.since_ms) or replay.since_ms[-1] > 0:
        wrong.append("moments are not in order")
    return wrong


def test_ranks_come_to_a_standstill_one_by_one(tmp_path: Path) -> None:
    """It begins with all ranks getting on; the culprit alone is in its own code at the end."""
    simulate(CaseSpec("small", "never-joined", "ddp", 4, "plain", 0), tmp_path)
    report, replay = replayed(tmp_path)
    assert replay is not None
    (culprit,) = report.culprits
    stuck = [state.count("w") for state in replay.states]
    assert (stuck[0], stuck[-1]) == (0, 3)
    assert stuck == sorted(stuck)
    assert replay.states[-1][culprit] == "."
    assert replay.good == "all_reduce #9 of default_pg (0)"


@pytest.mark.parametrize("example", ["wrong-shape", "two-faults", "p2p-unmatched"])
def test_real_jobs_end_as_their_verdict_says(example: str) -> None:
    """Also where dumps begin later than the replay."""
    report, replay = replayed(Path("examples") / example)
    assert replay is not None
    assert contradictions(report, replay) == []


@pytest.mark.parametrize("name", ["2.3.1/crossed_ahead-pipe", "2.6.0/mesh_stall-pipe"])
def test_calls_that_began_before_may_end_last(tmp_path: Path, name: str) -> None:
    """Real dumps: what was called before the last good call ends after all others have come."""
    with tarfile.open(f"tests/data/nccl/{name}.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    report, replay = replayed(tmp_path)
    assert replay is not None
    assert contradictions(report, replay) == []


@pytest.mark.parametrize("example", ["healthy", "late-rank", "dead-rank"])
def test_without_a_call_that_ranks_wait_in_there_is_none(example: str) -> None:
    """Nothing stands still, or nothing has been finished before."""
    _, replay = replayed(Path("examples") / example)
    assert replay is None


@settings(
    max_examples=8,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(
    fault=st.sampled_from(("never-joined", "pipeline-stall", "crossed-groups", "wrong-shape")),
    layout=st.sampled_from(("megatron", "hsdp", "moe", "interleaved")),
    condition=st.sampled_from(("plain", "ring", "active-stacks", "lost")),
    seed=st.integers(0, 10**6),
)
def test_generated_meshes_end_as_their_verdict_says(
    fault: str, layout: str, condition: str, seed: int
) -> None:
    """Each moment follows the one before, in groups of three dimensions."""
    with TemporaryDirectory() as folder:
        try:
            simulate(CaseSpec("mesh", fault, layout, 16, condition, seed), Path(folder))
        except UsageError:
            reject()
        report, replay = replayed(Path(folder))
        assert contradictions(report, replay) == [] if replay else True


def test_the_page_has_a_place_more_than_moments(tmp_path: Path) -> None:
    """The last one is the map of the verdict itself."""
    simulate(CaseSpec("small", "never-joined", "ddp", 4, "plain", 0), tmp_path)
    case = load([tmp_path])
    report = diagnose(case)
    picture = picture_of(case, report)
    page = render("html", report, case, None, picture)
    facts = json.loads(re.findall(r'id="facts">(.*?)</script>', page, re.DOTALL)[0])
    assert facts["replay"]["states"] == list(picture.replay.states if picture.replay else ())
    assert f'max="{len(facts["replay"]["since"])}"' in page
