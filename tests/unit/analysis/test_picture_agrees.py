"""No picture and no command contradicts its report: real dumps, examples, generated 3D jobs."""

from __future__ import annotations

import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from agreement import contradictions, one_sided, shown_by
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st

from lab.simulate.corpus import CaseSpec, spec_named
from lab.simulate.writing import simulate
from unhang.analysis import diagnose
from unhang.analysis.picture import picture_of
from unhang.case import Case
from unhang.errors import UsageError
from unhang.ingest import load
from unhang.report import Report

EXAMPLES = sorted(path.parent for path in Path("examples").glob("*/truth.json"))
NCCL = Path("tests/data/nccl")
REAL = sorted(NCCL.glob("*/*.tar.gz"))
ONCE_WRONG = (
    "2.13.0/coalesced_network-active",  # nothing but the closing entries of batches
    "2.15.0/mixed_stall-asked",  # two backends, each with a group of one name
    "2.15.0/mixed_cpu_instead-asked",  # calls of one number by both of them
    "2.3.1/uneven_stall-timeout",  # a batch that one rank has not made
)
SIMULATED = ("tuned/skipped-call-9", "tuned/head-overwritten-8")
"""Calls that lie before the last ones; calls that are in no dump any more."""
LATER = CaseSpec("later", "skipped-call", "megatron", 32, "plain", 569047)
"""All ranks are in other calls by now than the one that was skipped."""


def judged(place: Path) -> tuple[Case, Report]:
    """A case with its verdict."""
    case = load([place])
    return case, diagnose(case)


def unpacked(archive: Path, folder: Path) -> Path:
    """The dumps of an archive."""
    place = folder / archive.parent.name / archive.name
    with tarfile.open(archive) as packed:
        packed.extractall(place, filter="data")
    return place


def wrong_in(case: Case, report: Report) -> list[str]:
    """All contradictions of a case."""
    return [*contradictions(report, picture_of(case, report)), *one_sided(case, report)]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples_do_not_contradict_themselves(example: Path) -> None:
    """The row of the verdict has culprits and who waits for them, and so has each command."""
    assert wrong_in(*judged(example)) == []


@pytest.mark.parametrize("name", ONCE_WRONG)
def test_calls_that_were_absent_from_the_row_are_there(tmp_path: Path, name: str) -> None:
    """Real dumps that were drawn without the call of their verdict."""
    assert wrong_in(*judged(unpacked(NCCL / f"{name}.tar.gz", tmp_path))) == []


@pytest.mark.parametrize("spec", [*map(spec_named, SIMULATED), LATER], ids=lambda spec: spec.name)
def test_calls_of_long_ago_are_in_the_row(tmp_path: Path, spec: CaseSpec) -> None:
    """Also where ranks went on for longer than is drawn."""
    simulate(spec, tmp_path)
    assert wrong_in(*judged(tmp_path)) == []


def test_ranks_lack_no_calls_of_groups_of_others(tmp_path: Path) -> None:
    """Ranks that made the same calls need not lack the same: rank 5 alone is behind rank 4."""
    simulate(spec_named(SIMULATED[0]), tmp_path)
    case, report = judged(tmp_path)
    picture = picture_of(case, report)
    tensor = {at for at, each in enumerate(picture.columns) if each.label.startswith("TENSOR")}
    lacking = {
        rank
        for lane in picture.lanes
        for cell in lane.cells
        if cell.column in tensor and cell.state == "missing"
        for rank in lane.ranks
    }
    assert lacking == {5}


@pytest.mark.parametrize("version", sorted({path.parent for path in REAL}), ids=lambda p: p.name)
def test_real_dumps_do_not_contradict_themselves(tmp_path: Path, version: Path) -> None:
    """All captures of a version; the commands do show ranks."""
    wrong, commands = {}, 0
    archives = [path for path in REAL if path.parent == version]
    for archive in archives:
        case, report = judged(unpacked(archive, tmp_path))
        commands += len(list(shown_by(case, report)))
        if found := wrong_in(case, report):
            wrong[archive.name] = found
    assert wrong == {}
    assert commands > len(archives) // 3


@settings(
    max_examples=8,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),  # a smaller mesh is no clearer, and takes minutes
    suppress_health_check=list(HealthCheck),
)
@given(
    fault=st.sampled_from(("never-joined", "pipeline-stall", "skipped-call", "wrong-shape")),
    layout=st.sampled_from(("megatron", "hsdp", "moe", "interleaved")),
    ranks=st.sampled_from((16, 32)),
    condition=st.sampled_from(("plain", "ring", "active-stacks", "lost")),
    seed=st.integers(0, 10**6),
)
def test_generated_meshes_do_not_contradict_themselves(
    fault: str, layout: str, ranks: int, condition: str, seed: int
) -> None:
    """Tensor, pipeline and data groups of one description each, with their own numbers."""
    with TemporaryDirectory() as folder:
        try:
            simulate(CaseSpec("mesh", fault, layout, ranks, condition, seed), Path(folder))
        except UsageError:
            reject()
        assert wrong_in(*judged(Path(folder))) == []
