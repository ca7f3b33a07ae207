"""Ranks that want a core, or memory, and do not get it: real cgroups, and busy neighbours.

Where no cgroup may be made, tests/unit/collect/test_collect_room.py has what their files say.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from guide_page import on_the_page
from run_jobs import TORCHRUN, kill, run_job

CGROUP = Path("/sys/fs/cgroup")
MIB = 1 << 20

JOB = """\
import glob
import sys
import torch
import torch.distributed as dist


def grind():
    while not glob.glob("unhang-cases/*/report.json"):
        pass


def main():
    dist.init_process_group("gloo")
    for step in range(5):
        x = torch.ones(4)
        dist.all_reduce(x)
    if dist.get_rank() == 1:
        with open(sys.argv[1], "w") as group:
            group.write("0")
        grind()
    dist.all_reduce(x)


main()
"""

READS = """\
import mmap
import sys

with open(sys.argv[1], "w") as group:
    group.write("0")
with open(sys.argv[2], "rb") as file:
    data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
data.madvise(mmap.MADV_RANDOM)
while True:
    for place in range(0, len(data), 4096):
        data[place]
    print("ready", flush=True)
"""


HOARDS = """\
import torch
import torch.distributed as dist


def hoard():
    kept = []
    while True:
        kept.append(torch.ones(1 << 20))


def main():
    dist.init_process_group("gloo")
    x = torch.ones(4)
    for step in range(5):
        dist.all_reduce(x)
    if dist.get_rank() == 1:
        hoard()
    dist.all_reduce(x)


main()
"""


@contextmanager
def group_of(controller: str, old: dict[str, str], new: dict[str, str]) -> Iterator[Path | None]:
    """A real cgroup with settings of either version; None if none may be made."""
    first = (CGROUP / controller).is_dir()
    group = (CGROUP / controller if first else CGROUP) / f"unhang-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        for name, value in (old if first else new).items():
            (group / name).write_text(value)
    except OSError:
        group.rmdir()
        yield None
        return
    yield group
    while (group / "cgroup.procs").read_text().strip():
        pass  # those who were ended leave it one after the other
    group.rmdir()


@pytest.fixture
def tenth_of_a_core() -> Iterator[Path | None]:
    """A group that may use a tenth of a core."""
    with group_of("cpu", {"cpu.cfs_quota_us": "10000"}, {"cpu.max": "10000 100000"}) as group:
        yield group


@pytest.fixture
def little_memory() -> Iterator[Path | None]:
    """A group that may use 16 MB."""
    limit = str(16 * MIB)
    with group_of("memory", {"memory.limit_in_bytes": limit}, {"memory.high": limit}) as group:
        yield group


@pytest.fixture
def a_gigabyte() -> Iterator[Path | None]:
    """A group that may use 1 GB, no swap."""
    limit = str(1000 * MIB)
    old = {"memory.limit_in_bytes": limit, "memory.memsw.limit_in_bytes": limit}
    with group_of("memory", old, {"memory.max": limit, "memory.swap.max": "0"}) as group:
        yield group


def looked_at(pid: int) -> dict[str, Any]:
    """What `unhang stacks` says of a process."""
    words = ["stacks", "--pid", str(pid), "--interval", "2", "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "unhang", *words], capture_output=True, text=True, check=False
    )
    return dict(json.loads(done.stdout))


def test_a_throttled_rank_of_a_job(tmp_path: Path, tenth_of_a_core: Path | None) -> None:
    """The limit is why others wait, with its figures, and the rank is left alone: it moves."""
    if tenth_of_a_core is None:
        return
    (tmp_path / "job.py").write_text(JOB)
    words = [str(TORCHRUN), "--standalone", "--nproc-per-node", "2", "job.py"]
    options = (*kill()[:-1], "report")
    procs = tenth_of_a_core / "cgroup.procs"
    outcome = run_job(tmp_path, options, [*words, str(procs)])
    assert outcome.code == 0, "it comes in the end"
    cause = outcome.cause
    assert (cause["code"], cause["culprits"], cause["victims"]) == ("UH607", [1], [0])
    assert "its cgroup may use 0.1 cores, and was throttled in" in outcome.report["summary"]
    assert "rank 0 waits for it in all_reduce" in outcome.report["summary"]
    on_the_page("cat /sys/fs/cgroup/cpu.stat", outcome.report["summary"])
    assert any(site["function"] == "grind" for site in cause["sites"])


def test_a_rank_that_the_kernel_kills_for_memory(tmp_path: Path, a_gigabyte: Path | None) -> None:
    """Told as that by `run` and by `diagnose` of its case; the job is ended by its launcher."""
    if a_gigabyte is None:
        return
    (tmp_path / "job.py").write_text(HOARDS)
    inside = f'echo 0 > {a_gigabyte / "cgroup.procs"}; exec "$@"'
    words = [str(TORCHRUN), "--standalone", "--nproc-per-node", "2", "job.py"]
    outcome = run_job(tmp_path, (), ["sh", "-c", inside, "sh", *words])
    said = outcome.said
    assert "rank 1 was killed by the kernel for lack of memory" in said, outcome.report
    cause = outcome.cause
    assert (cause["code"], cause["culprits"], cause["confidence"]) == ("UH106", [1], "high")
    on_the_page("dmesg | grep -i 'killed process'", cause["summary"])
    again = subprocess.run(
        [sys.executable, "-m", "unhang", "diagnose", str(outcome.only_case)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "was killed by the kernel for lack of memory" in " ".join(again.stdout.split())


def test_a_collection_tells_of_kills_for_memory(tmp_path: Path, a_gigabyte: Path | None) -> None:
    """Rank 1 was killed before anybody looked: its peer's cgroup has counted it."""
    if a_gigabyte is None:
        return
    enters = f"import time; open({str(a_gigabyte / 'cgroup.procs')!r}, 'w').write('0')\n"
    hoards = f"{enters}kept = [bytes(1 << 24) + b'x' for _ in range(1000)]"
    assert subprocess.run([sys.executable, "-c", hoards], check=False).returncode == -9
    job = {"RANK": "0", "WORLD_SIZE": "2", "UNHANG_JOB": f"kills-{os.getpid()}"}
    waits = f"{enters}print('ready', flush=True)\ntime.sleep(600)"
    case = str(tmp_path / "case")
    with _started(sys.executable, "-c", waits, **job):
        words = ["--job", job["UNHANG_JOB"], "--only", "stacks", "--case", case]
        subprocess.run(
            [sys.executable, "-m", "unhang", "collect", *words], capture_output=True, check=False
        )
    told = subprocess.run(
        [sys.executable, "-m", "unhang", "diagnose", case, "--format", "json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    notes = [note["text"] for note in json.loads(told.stdout)["notes"]]
    (killed,) = (text for text in notes if "lack of memory" in text)
    assert "the kernel killed 1 process for lack of memory in the cgroup of rank 0" in killed
    assert "of 1,000 MB" in killed


def test_a_throttled_process(tenth_of_a_core: Path | None) -> None:
    """Without a rank, it is named by its process id."""
    if tenth_of_a_core is None:
        return
    program = (
        f"import os; open({str(tenth_of_a_core / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n"
        "print('ready', flush=True)\n"
        "while True: pass"
    )
    with _started(sys.executable, "-c", program) as process:
        report = looked_at(process.pid)
    assert report["status"] == "problem"
    assert report["findings"][0]["code"] == "UH607"
    assert "its cgroup may use 0.1 cores" in report["summary"]


def test_a_process_that_reads_its_pages_again_and_again(
    tmp_path: Path, little_memory: Path | None
) -> None:
    """Its file is larger than the memory that its group may use."""
    if little_memory is None:
        return
    data = tmp_path / "data"
    _write_to_disk(data, os.urandom(MIB) * 40)
    words = (sys.executable, "-c", READS, str(little_memory / "cgroup.procs"), str(data))
    with _started(*words) as process:
        report = looked_at(process.pid)
    said = [f["summary"] for f in report["findings"] if f["code"] == "UH607"]
    (memory,) = (summary for summary in said if "short of memory" in summary)
    assert "of 16 MB" in memory
    assert "pages per second from a disk" in memory


def test_busy_neighbours() -> None:
    """Four processes on one core: it is told, and blames nobody."""
    core = min(os.sched_getaffinity(0))
    spins = (
        f"import os; os.sched_setaffinity(0, [{core}]); print('ready', flush=True)\n"
        "while True: pass"
    )
    with ExitStack() as stack:
        others = [stack.enter_context(_started(sys.executable, "-c", spins)) for _ in range(4)]
        report = looked_at(others[0].pid)
    found = next(f for f in report["findings"] if f["code"] == "UH607")
    assert found["role"] == "observation"
    assert found["culprits"] == []
    assert "it wanted a core and had none for" in found["summary"]


def _write_to_disk(path: Path, data: bytes) -> None:
    """Write a file of which no page stays in memory: that would be charged to us."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def _started(*words: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has said "ready"."""
    environment = {**os.environ, **variables}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()
