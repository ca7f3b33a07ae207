"""Real NCCL dumps with injected faults (16 ranks, unfinished calls only, no stacks)."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.analysis import diagnose
from unhang.ingest import load

DATA = Path(__file__).parents[1] / "data" / "nvrx"


@pytest.mark.parametrize(
    ("name", "code", "culprits", "causes"),
    [
        ("lock_gil_1st", "UH101", (9, 14), 1),
        ("lock_gil_2nd", "UH101", (10, 15), 2),
        ("gpu_error_1st", "UH105", (12, 14), 2),
        ("gpu_error_2nd", "UH105", (9, 14), 2),
    ],
)
def test_injected_faults_are_named(
    name: str, code: str, culprits: tuple[int, ...], causes: int
) -> None:
    """Exactly the ranks that the injection log names, one cause for each root, nobody else."""
    report = diagnose(load([DATA / name]))
    assert (report.status, report.culprits) == ("problem", culprits)
    assert [cause.code for cause in report.causes] == [code] * causes
    assert all(not set(cause.victims) & set(cause.culprits) for cause in report.causes)


def test_pipeline_stages_are_victims_through_their_neighbours() -> None:
    """Everybody else of the 16 ranks is a victim of the two that hold the GIL."""
    cause = diagnose(load([DATA / "lock_gil_1st"])).causes[0]
    assert cause.victims == tuple(rank for rank in range(16) if rank not in (9, 14))
    assert [(wait.waiter, wait.target) for wait in cause.waits] == [(0, 8), (8, 9)]
    assert cause.confidence == "medium"


@pytest.mark.parametrize(
    ("name", "culprits"),
    [
        ("lock_gil_1st", (9, 14)),
        ("lock_gil_2nd", (10, 15)),
        ("gpu_error_1st", (12, 14)),
        ("gpu_error_2nd", (9, 14)),
    ],
)
def test_one_lost_dump(name: str, culprits: tuple[int, ...]) -> None:
    """Whichever one is lost: those of the culprits who left a dump are named, and nobody else.

    A rank that is behind what its peers have finished gives itself away, though another rank that
    its head waits for left nothing.
    """
    files = {int(path.name.rsplit("_", 1)[1]): path for path in (DATA / name).glob("_dump_*")}
    for lost in files:
        report = diagnose(load([path for rank, path in files.items() if rank != lost]))
        assert report.culprits == tuple(rank for rank in culprits if rank != lost), lost


@pytest.mark.parametrize("name", ["gpu_error_2nd", "lock_gil_1st"])
def test_of_several_without_a_dump_any_may_be_the_one(name: str) -> None:
    """Rank 8 is innocent, and left as little as ranks 9 and 14: nobody is named for sure."""
    gone = {"_dump_8", "_dump_9", "_dump_14"}
    kept = [path for path in (DATA / name).glob("_dump_*") if path.name not in gone]
    (cause,) = diagnose(load(kept)).causes
    assert (cause.code, cause.culprits, cause.confidence) == ("UH103", (8, 9, 14), "low")


def test_partners_of_two_stopped_devices_are_not_blamed_with_confidence() -> None:
    """Without the dumps that show them behind, nothing tells the two from their silent partners."""
    gone = ("_dump_13", "_dump_15")
    kept = [path for path in (DATA / "gpu_error_1st").glob("_dump_*") if path.name not in gone]
    report = diagnose(load(kept))
    assert all(cause.confidence == "low" for cause in report.causes)
