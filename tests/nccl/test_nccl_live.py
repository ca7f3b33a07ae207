"""Real NCCL jobs on the fake device under `unhang run` (`make test-nccl`, lab/nccl/README.md).

`make test-nccl-newest` runs some of them on torch 2.15, where "nccl" is another class, which a hook
of torch's records: as it comes, and with the class of before.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ports import free_port
from run_jobs import Outcome, kill, run_job

from lab.nccl.build import Device, build
from lab.nccl.faults import FAULTS
from unhang.ingest import load
from unhang.run.child.environment import site_directories, torch_version
from unhang.torchenv import release_of

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("UNHANG_LAB_NCCL", ROOT / ".venv-nccl" / "bin" / "python"))
JOBS = ROOT / "lab" / "nccl" / "jobs"
RELEASE = release_of(torch_version(site_directories(str(PYTHON), {}))) or (0, 0)
CLASSES = {"nccl2": "1", "nccl": "0"} if RELEASE >= (2, 15) else {"nccl": "0"}
"""What records, and the TORCH_DIST_USE_NCCL2 that makes it so."""


@pytest.fixture(scope="session")
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    """The fake device for the torch of `make setup-nccl`, which the first worker builds for all.

    It imports torch, too: ranks that start at once would each compile its sources.
    """
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent
    built = place / "device.json"
    with (place / "device.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            made = build(PYTHON, place / "fakegpu")
            environ = {**os.environ, **made.environment()}
            subprocess.run([PYTHON, "-c", "import torch.distributed"], env=environ, check=True)
            built.write_text(json.dumps([made.version, str(made.folder)]))
    version, folder = json.loads(built.read_text())
    return Device(PYTHON, version, Path(folder))


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
@pytest.mark.parametrize("recorder", CLASSES)
@pytest.mark.parametrize(
    ("script", "job", "told", "marks"),
    [
        ("hosts.py", "stall", ("UH101", [2]), ("here",)),
        ("hosts.py", "skipped_send", ("UH302", [1]), ("waits", "skipped_send: here")),
        ("hosts.py", "crossed_blocking", ("UH301", []), ("waits", "crossed: here")),
        ("devices.py", "device_stops", ("UH402", [2]), ("waits", "steps: calls")),
    ],
)
def test_a_hang_is_explained(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    job: str,
    told: tuple[str, list[int]],
    marks: tuple[str, ...],
    recorder: str,
) -> None:
    """The right ranks are named, at their own lines, by dumps of the recorder that records.

    Where they stand by their stacks, and by the dumps where they called what does not end. No
    setting of ours makes torch complain.
    """
    settings = {**FAULTS[job].device, "TORCH_DIST_USE_NCCL2": CLASSES[recorder]}
    for key, value in settings.items():
        monkeypatch.setenv(key, value)
    outcome = launch(tmp_path, script, job)
    assert "deprecated" not in outcome.said
    cause = outcome.cause
    assert (cause["code"], cause["culprits"]) == told, outcome.said
    role = "culprit" if told[1] else "victim"
    sites = (site for site in cause["sites"] if site["role"] == role)
    places = {(Path(site["file"]).name, site["line"]) for site in sites}
    files = ("common.py", script)
    known = {(file, line_of(file, mark)) for file, mark in zip(files, marks, strict=False)}
    assert places, outcome.said
    assert places <= known, outcome.said
    case = load([outcome.only_case])
    assert {dump.backend for dump in case.dumps} == {recorder}
    assert len(case.dumps) == 4


@pytest.mark.usefixtures("meeting")
def test_a_slow_device_is_no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody waits for rank 1 again and again, and the job ends as it should."""
    for key, value in FAULTS["slow_device"].device.items():
        monkeypatch.setenv(key, value)
    outcome = launch(tmp_path, "hosts.py", "slow_device")
    assert (outcome.code, outcome.cases) == (0, []), outcome.said
