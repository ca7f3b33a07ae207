"""Real NCCL jobs on the fake device under `unhang run` (`make test-nccl`, lab/nccl/README.md)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from armed_jobs import free_port
from run_jobs import Outcome, kill, run_job

from lab.nccl.build import Device, build
from lab.nccl.faults import FAULTS
from unhang.ingest import load

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("UNHANG_LAB_NCCL", ROOT / ".venv-nccl" / "bin" / "python"))
JOBS = ROOT / "lab" / "nccl" / "jobs"


@pytest.fixture(scope="session")
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    """The fake device for the torch of `make setup-nccl`."""
    return build(PYTHON, tmp_path_factory.mktemp("fakegpu"))


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch, device: Device) -> Iterator[str]:
    """The environment of a job on that device, and the name of the place where its ranks meet."""
    name = f"test-{os.getpid()}-{free_port()}"
    for key, value in {**device.environment(), "FAKE_MEETING": name}.items():
        monkeypatch.setenv(key, value)
    yield name
    shutil.rmtree(f"/dev/shm/fakegpu.{name}", ignore_errors=True)  # noqa: S108 - where they meet


def launch(folder: Path, script: str, job: str) -> Outcome:
    """A job of four ranks by torchrun under `unhang run`, to its end."""
    torchrun = [str(PYTHON.with_name("torchrun")), "--nproc-per-node", "4"]
    port = ["--master-port", str(free_port())]
    return run_job(folder, kill(), [*torchrun, *port, str(JOBS / script), job])


def line_of(script: str, mark: str) -> int:
    """The line of a job that a mark stands on."""
    lines = (JOBS / script).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))


@pytest.mark.usefixtures("meeting")
@pytest.mark.parametrize(
    ("script", "job", "code", "culprits", "marks"),
    [
        ("hosts.py", "stall", "UH101", [2], ("here",)),
        ("hosts.py", "skipped_send", "UH302", [1], ("waits", "skipped_send: here")),
        ("hosts.py", "crossed_blocking", "UH301", [], ("waits", "crossed: here")),
        ("devices.py", "device_stops", "UH402", [2], ("waits", "steps: calls")),
    ],
)
def test_a_hang_is_explained(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    job: str,
    code: str,
    culprits: list[int],
    marks: tuple[str, ...],
) -> None:
    """The right ranks are named, at their own lines, by dumps of NCCL's own recorder.

    Where they stand by their stacks, and by the dumps where they called what does not end.
    """
    for key, value in FAULTS[job].device.items():
        monkeypatch.setenv(key, value)
    outcome = launch(tmp_path, script, job)
    cause = outcome.cause
    assert (cause["code"], cause["culprits"]) == (code, culprits), outcome.said
    role = "culprit" if culprits else "victim"
    sites = (site for site in cause["sites"] if site["role"] == role)
    places = {(Path(site["file"]).name, site["line"]) for site in sites}
    files = ("common.py", script)
    known = {(file, line_of(file, mark)) for file, mark in zip(files, marks, strict=False)}
    assert places, outcome.said
    assert places <= known, outcome.said
    case = load([outcome.only_case])
    assert {dump.backend for dump in case.dumps} == {"nccl"}
    assert len(case.dumps) == 4


@pytest.mark.usefixtures("meeting")
def test_a_slow_device_is_no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody waits for rank 1 again and again, and the job ends as it should."""
    for key, value in FAULTS["slow_device"].device.items():
        monkeypatch.setenv(key, value)
    outcome = launch(tmp_path, "hosts.py", "slow_device")
    assert (outcome.code, outcome.cases) == (0, []), outcome.said
