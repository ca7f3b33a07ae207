"""What limits a process: cgroups of both versions, and what happened between two readings."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.collect.starved import with_starved
from unhang.report import Report
from unhang.surroundings import Room, kept_from, room_of


def tree(root: Path, files: dict[str, str]) -> None:
    """Write files below a folder."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_version_2(tmp_path: Path) -> None:
    """One hierarchy, `cpu.max` and `memory.high`."""
    tree(
        tmp_path,
        {
            "proc/self/mounts": f"cgroup2 {tmp_path}/cg cgroup2 rw 0 0\n",
            "proc/77/cgroup": "0::/job\n",
            "proc/77/status": "Name:\tpython\nVmSwap:\t    2048 kB\n",
            "cg/job/cpu.max": "150000 100000\n",
            "cg/job/cpu.stat": "usage_usec 9\nnr_periods 40\nnr_throttled 30\nthrottled_usec 5\n",
            "cg/job/memory.max": "max\n",
            "cg/job/memory.high": "1048576000\n",
            "cg/job/memory.current": "1040000000\n",
            "cg/job/memory.events": "low 0\nhigh 12\nmax 0\noom 0\noom_kill 1\n",
        },
    )
    assert room_of(77, tmp_path / "proc") == Room(
        1.5, 40, 30, 1_040_000_000, 1_048_576_000, 12, 1, 2048 * 1024
    )


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
            "mem/m/memory.failcnt": "0\n",
        },
    )
    assert room_of(77, tmp_path / "proc") == Room(memory_used=5)


def test_what_is_not_there_limits_nothing(tmp_path: Path) -> None:
    """A process that ended, a kernel without cgroups."""
    assert room_of(1, tmp_path) == Room()


@pytest.mark.parametrize(
    ("after", "sorts"),
    [
        (Room(cores=0.2, periods=20, throttled=19), ["cpu"]),
        (Room(cores=0.2, periods=20, throttled=2), []),
        (Room(cores=0.2, periods=2, throttled=2), []),
        (Room(memory_used=99, memory_limit=100, pushed_back=3), ["memory"]),
        (Room(memory_used=99, memory_limit=100), []),
        (Room(memory_used=50, memory_limit=100, pushed_back=3), []),
    ],
)
def test_only_what_happened_between_counts(after: Room, sorts: list[str]) -> None:
    """A limit that nobody met is no reason."""
    assert [sort for sort, _, _ in kept_from(Room(), after)] == sorts


def test_a_limit_stands_first_where_it_holds_a_rank_up() -> None:
    """Else it is told beside."""
    report = Report(status="insufficient", summary="Not enough evidence.", findings=())
    held = with_starved(report, [(3, 77, ("cpu", 0.9, "its cgroup may use 0.2 cores"))])
    assert (held.status, held.culprits) == ("problem", (3,))
    assert held.summary == "Rank 3 is kept from running: its cgroup may use 0.2 cores."
    beside = with_starved(report, [(3, 77, ("cpu", 0.3, "its cgroup may use 2 cores"))])
    assert (beside.status, beside.summary) == (report.status, report.summary)
    assert [finding.code for finding in beside.findings] == ["UH607"]
