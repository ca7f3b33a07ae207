"""What the simulator writes is what torch wrote, entry by entry, on the same programs.

The dumps of torch are those of tests/data/nccl, made with the jobs of lab/nccl. Not compared is
what a program does not decide: times, threads, stacks, durations.
"""

from __future__ import annotations

import io
import pickle
import tarfile
from pathlib import Path
from typing import Any

import pytest

from lab.nccl.plans import PLANS
from lab.recorder.recorder import Recorder
from lab.recorder.recording import Recording
from lab.simulate.engine import run

NCCL = Path(__file__).parents[2] / "data" / "nccl"
FORMATS = {
    "2.2.2": "list", "2.3.1": "1.4", "2.4.1": "2.1",
    "2.6.0": "2.4", "2.8.0": "2.9", "2.13.0": "2.10",
}  # fmt: skip
"""Builds of torch, and the format that each writes."""
CHANGING = ("frames", "thread_name", "thread_id", "time_created_ns", "time_created_us",
            "duration_ms", "timeout_ms", "comm_lib_version", "nccl_version")  # fmt: skip
CASES = [
    (version, archive.name.removesuffix(".tar.gz"))
    for version in FORMATS
    for archive in sorted((NCCL / version).glob("*.tar.gz"))
    if archive.name.partition("-")[0] in PLANS
]


def torch_wrote(version: str, case: str) -> dict[int, Any]:
    """The dumps of one capture by rank."""
    with tarfile.open(NCCL / version / f"{case}.tar.gz") as archive:
        return {
            int(member.name.rpartition("_")[2]): pickle.load(  # noqa: S301 - our own capture
                io.BytesIO(archive.extractfile(member).read())  # type: ignore[union-attr]
            )
            for member in archive
        }


def simulated(job: str, version: str, ranks: list[int]) -> dict[int, Any]:
    """The dumps of the same program on the simulator, long after it has come to a stand."""
    recorder = Recorder(run(PLANS[job](), 1), Recording(version=FORMATS[version]), 1)
    return {rank: recorder.dump(rank, "nccl") for rank in ranks}


def comparable(value: Any) -> Any:  # noqa: ANN401 - a dump
    """A dump with the kind of what changes from run to run, and the order of keys."""
    if isinstance(value, dict):
        return [
            (
                key,
                type(item).__name__
                if key in CHANGING or "discovered" in str(key)
                else comparable(item),
            )
            for key, item in value.items()
        ]
    if isinstance(value, (list, tuple)):
        return type(value)(map(comparable, value))
    return value


@pytest.mark.parametrize(("version", "case"), CASES)
def test_the_simulator_writes_what_torch_wrote(version: str, case: str) -> None:
    """Keys and their order, types, ids, states, status and groups of all ranks."""
    real = torch_wrote(version, case)
    made = simulated(case.partition("-")[0], version, sorted(real))
    for rank, dump in sorted(real.items()):
        assert comparable(made[rank]) == comparable(dump), f"rank {rank}"


def test_every_plan_has_its_capture() -> None:
    """In nearly every format."""
    assert {case.partition("-")[0] for _, case in CASES} == set(PLANS)
