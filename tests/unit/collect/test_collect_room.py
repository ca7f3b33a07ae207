"""What limits a process: cgroups of both versions, and what it lacked between two readings."""

from __future__ import annotations

import os
from pathlib import Path

from unhang.model import Room, Shortage
from unhang.room import RoomReading, awake_of, pressure_of, reading_of, room_of, short_of


def tree(root: Path, files: dict[str, str]) -> None:
    """Write files below a folder."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_version_2(tmp_path: Path) -> None:
    """One hierarchy, `cpu.max` and `memory.high`; a group's own pressure before the node's."""
    tree(
        tmp_path,
        {
            "proc/self/mounts": f"cgroup2 {tmp_path}/cg cgroup2 rw 0 0\n",
            "proc/77/cgroup": "0::/job\n",
            "proc/77/status": "Name:\tpython\nVmSwap:\t    2048 kB\n",
            "proc/77/stat": "77 (a b) S 1 1 1 0 -1 0 5 0 12 0 3 4",
            "proc/77/task/77/schedstat": "1500000000 500000000 9\n",
            "proc/vmstat": f"pswpin {3 * 4096 // os.sysconf('SC_PAGE_SIZE')}\n",
            "proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=9000000\n",
            "cg/job/cpu.max": "150000 100000\n",
            "cg/job/cpu.stat": "usage_usec 9\nnr_periods 40\nnr_throttled 30\nthrottled_usec 5\n",
            "cg/job/memory.max": "max\n",
            "cg/job/memory.high": "1048576000\n",
            "cg/job/memory.current": "1040000000\n",
            "cg/job/memory.stat": "anon 1000000000\nfile 7\nshmem 30000000\n",
            "cg/job/memory.events": "low 0\nhigh 12\nmax 0\noom 0\noom_kill 1\n",
            "cg/job/memory.pressure": "some avg10=90.00 avg60=0.00 avg300=0.00 total=2500000\n",
        },
    )
    proc = tmp_path / "proc"
    assert room_of(77, proc) == Room(
        cores=1.5, periods=40, throttled=30, memory_used=1_040_000_000, memory_held=1_030_000_000,
        memory_limit=1_048_576_000, pushed_back=12, oom_kills=1, swapped=2048 * 1024,
    )  # fmt: skip
    reading = reading_of(77, proc)
    assert reading.threads == {77: (1.5, 0.5)}
    assert (reading.faults, reading.memory_stalled_s) == (12, 2.5)
    assert reading.swapped_in == 3 * 4096
    assert pressure_of("memory", proc) == 9.0


def test_version_1(tmp_path: Path) -> None:
    """A hierarchy a controller; a quota of -1 and a limit beyond all memory are none."""
    tree(
        tmp_path,
        {
            "proc/self/mounts": (
                f"cgroup {tmp_path}/cpu cgroup rw,cpu 0 0\n"
                f"cgroup {tmp_path}/mem cgroup rw,memory 0 0\n"
            ),
            "proc/77/cgroup": "2:memory:/m\n1:cpu:/j\n0::/\n",
            "cpu/j/cpu.cfs_quota_us": "-1\n",
            "cpu/j/cpu.cfs_period_us": "100000\n",
            "cpu/j/cpu.stat": "nr_periods 0\nnr_throttled 0\n",
            "mem/m/memory.limit_in_bytes": "9223372036854771712\n",
            "mem/m/memory.usage_in_bytes": "5\n",
            "mem/m/memory.stat": "total_rss 3\ntotal_shmem 1\n",
            "mem/m/memory.failcnt": "0\n",
        },
    )
    assert room_of(77, tmp_path / "proc") == Room(memory_used=5, memory_held=4)


def test_a_limit_of_a_group_above_counts(tmp_path: Path) -> None:
    """SLURM and Kubernetes limit a job or a pod; the process is in a group below that."""
    tree(
        tmp_path,
        {
            "proc/self/mounts": f"cgroup2 {tmp_path}/cg cgroup2 rw 0 0\n",
            "proc/77/cgroup": "0::/job_5/step_0/task_0\n",
            "cg/job_5/cpu.max": "200000 100000\n",
            "cg/job_5/cpu.stat": "nr_periods 8\nnr_throttled 4\n",
            "cg/job_5/memory.max": "4096\n",
            "cg/job_5/memory.current": "4000\n",
            "cg/job_5/step_0/task_0/cpu.max": "max 100000\n",
            "cg/job_5/step_0/task_0/memory.max": "max\n",
        },
    )
    assert room_of(77, tmp_path / "proc") == Room(
        cores=2.0, periods=8, throttled=4, memory_used=4000, memory_limit=4096
    )


def test_what_is_not_there_limits_nothing(tmp_path: Path) -> None:
    """A process that ended, a kernel without cgroups."""
    assert room_of(1, tmp_path) == Room()
    assert awake_of(1, tmp_path) == {}


def test_what_lies_between_two_readings() -> None:
    """Of threads that were there both times; of a group with another limit nothing is compared."""
    then = Room(cores=0.5, periods=10, throttled=2, pushed_back=1)
    now = Room(cores=0.5, periods=30, throttled=20, pushed_back=4)
    waits = {7: (1.5, 3.5), 8: (0.1, 0.0), 9: (9.0, 9.0)}
    before = RoomReading(7, 10.0, then, {7: (1.0, 2.0), 8: (0.0, 0.0)}, 4, 5, 1.0)
    after = RoomReading(7, 12.0, now, waits, 4, 25, 2.5)
    assert short_of(before, after) == Shortage(
        seconds=2.0,
        ran_s=0.5,
        queued_s=1.5,
        threads=1,
        usable=4,
        cores=0.5,
        periods=20,
        throttled=18,
        pushed_back=3,
        memory_stalled=0.75,
        faults=20,
    )
    moved = RoomReading(7, 12.0, Room(cores=2.0, periods=900, throttled=900), {7: (1.5, 3.5)}, 4)
    assert short_of(before, moved).throttled == 0
