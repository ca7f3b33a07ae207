"""Whether the kernel killed a rank for memory: counters of both cgroup versions, by file trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.model import MemoryKill
from unhang.run.watching.memory import TURN_S, MemoryCounts

MIB = 1 << 20


class Node:
    """A /proc and a cgroup tree, with a job's group of 100 MB and a rank's group below it."""

    def __init__(self, root: Path, *, second: bool) -> None:
        self.proc, self.second = root / "proc", second
        self.job, self.rank = root / "mem" / "job", root / "mem" / "job" / "rank"
        (self.proc / "self").mkdir(parents=True)
        self.rank.mkdir(parents=True)
        kind, options = ("cgroup2", "rw") if second else ("cgroup", "rw,memory")
        (self.proc / "self" / "mounts").write_text(f"cgroup {root}/mem {kind} {options} 0 0\n")
        limit, peak = ("max", "peak") if second else ("limit_in_bytes", "max_usage_in_bytes")
        (self.job / f"memory.{limit}").write_text(f"{100 * MIB}\n")
        (self.job / f"memory.{peak}").write_text(f"{99 * MIB}\n")
        (self.rank / f"memory.{limit}").write_text("max\n" if second else f"{(1 << 63) - 4096}\n")
        self.killed(0)

    def starts(self, *pids: int) -> None:
        """Processes of the rank's group."""
        for pid in pids:
            (self.proc / str(pid)).mkdir()
            text = "0::/job/rank\n" if self.second else "4:memory:/job/rank\n0::/\n"
            (self.proc / str(pid) / "cgroup").write_text(text)

    def killed(self, count: int) -> None:
        """What the counter of the rank's group says; in version 1 that above says nothing."""
        if self.second:
            (self.rank / "memory.events").write_text(f"low 0\noom 3\noom_kill {count}\n")
        else:
            text = f"oom_kill_disable 0\nunder_oom 0\noom_kill {count}\n"
            (self.rank / "memory.oom_control").write_text(text)
            (self.job / "memory.oom_control").write_text(text.replace(str(count), "0"))


@pytest.fixture(params=[True, False], ids=["version 2", "version 1"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    """One of each version."""
    return Node(tmp_path, second=request.param)


def test_a_kill_as_it_ended(node: Node) -> None:
    """The limit is that of the group above, and the count that of its own; the file may be gone."""
    node.starts(7, 8)
    counts = MemoryCounts(node.proc)
    counts.follow([7, 8], 100.0)
    node.killed(1)
    (node.proc / "7" / "cgroup").write_text("")  # a dead process is in no group
    assert counts.kills_at_end([7]) == {7: MemoryKill(1, 1, 100 * MIB, 99 * MIB)}
    counts.follow([8], 101.0)
    assert counts.kills_at_end([8]) == {}, "one kill explains one end"


def test_a_kill_that_the_kernel_counts_before_the_process_is_gone(node: Node) -> None:
    """It may take seconds to go, and be looked at meanwhile."""
    node.starts(7)
    counts = MemoryCounts(node.proc)
    counts.follow([7], 100.0)
    node.killed(1)
    counts.follow([7], 100.0 + TURN_S)
    assert counts.kills_at_end([7])[7].is_certain


def test_a_process_that_is_about_to_end_has_left_its_group(node: Node) -> None:
    """It lives for a while yet, in the root of all groups."""
    node.starts(7)
    counts = MemoryCounts(node.proc)
    counts.follow([7], 100.0)
    node.killed(1)
    text = "0::/\n" if node.second else "4:memory:/\n0::/\n"
    (node.proc / "7" / "cgroup").write_text(text)
    counts.follow([7], 100.1)
    assert counts.kills_at_end([7])[7].is_certain


def test_a_kill_long_before_explains_nothing(node: Node) -> None:
    """A worker was killed for memory once; somebody ends the rank a minute later."""
    node.starts(7)
    counts = MemoryCounts(node.proc)
    counts.follow([7], 100.0)
    node.killed(1)
    for turn in range(1, 4):
        counts.follow([7], 100.0 + turn * TURN_S)
    assert counts.kills_at_end([7]) == {}


def test_fewer_kills_than_ends(node: Node) -> None:
    """Nobody knows which of the two it was."""
    node.starts(7, 8)
    counts = MemoryCounts(node.proc)
    counts.follow([7, 8], 100.0)
    node.killed(1)
    kills = counts.kills_at_end([7, 8])
    assert {pid: (kill.kills, kill.ended) for pid, kill in kills.items()} == {7: (1, 2), 8: (1, 2)}
    assert not kills[7].is_certain


def test_a_process_of_which_nothing_is_known(tmp_path: Path) -> None:
    """No cgroups, or one that came and went between two looks."""
    counts = MemoryCounts(tmp_path)
    counts.follow([7], 100.0)
    assert counts.kills_at_end([7, 9]) == {}
