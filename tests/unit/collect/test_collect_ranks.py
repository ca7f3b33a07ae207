from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from unhang.collect.processes import Process, ProcessTable, read_process, read_processes
from unhang.collect.ranks import (
    Target,
    below,
    find_ranks,
    is_launcher,
    of_one_job,
    python_processes,
)
from unhang.record.contact.marks import Mark, start_ticks

TORCHRUN = {"TORCHELASTIC_RUN_ID": "job7", "WORLD_SIZE": "4", "MASTER_PORT": "29500"}


def python(pid: int, ppid: int = 1, command: str = "python train.py", **environ: str) -> Process:
    """A Python process with an environment."""
    return Process(
        pid, ppid, start_ticks=pid, state="S", command=command, python=True, environ=environ
    )


def other(pid: int, ppid: int, command: str, **environ: str) -> Process:
    """A process of another program."""
    return Process(pid, ppid, start_ticks=pid, state="S", command=command, environ=environ)


def seen(targets: list[Target]) -> list[tuple[int, int, str, int]]:
    """Process, rank, role and parent rank of each target."""
    return [(t.process.pid, t.rank, t.role, t.parent_rank) for t in targets]


def test_ranks_of_torchrun_and_their_loaders() -> None:
    """The launcher has no rank, a worker with the same rank below it is its helper."""
    table = ProcessTable.of(
        [
            python(10, command="/opt/venv/bin/python /opt/venv/bin/torchrun --nproc 2 train.py"),
            python(11, 10, RANK="0", LOCAL_RANK="0", **TORCHRUN),
            python(12, 10, RANK="1", LOCAL_RANK="1", **TORCHRUN),
            python(13, 12, RANK="1", LOCAL_RANK="1", **TORCHRUN),
            python(14, 13, RANK="1", LOCAL_RANK="1", **TORCHRUN),
            other(15, 12, "nvidia-smi", RANK="1"),
        ]
    )
    found = find_ranks(table)
    assert seen(found) == [
        (11, 0, "rank", -1),
        (12, 1, "rank", -1),
        (13, -1, "helper", 1),
        (14, -1, "helper", 1),
    ]
    assert (found[1].world_size, found[1].local_rank, found[1].job, found[1].how) == (
        4,
        1,
        "job7",
        "RANK",
    )


def test_shells_and_numactl_around_a_rank_are_not_it() -> None:
    """Wrappers carry the variables too; the Python process below them is the rank."""
    task = {"SLURM_PROCID": "3", "SLURM_JOB_ID": "9", "SLURM_STEP_ID": "0"}
    table = ProcessTable.of(
        [
            other(10, 1, "bash -c python train.py", **task),
            other(11, 10, "numactl -N 0 python train.py", **task),
            python(12, 11, **task),
        ]
    )
    assert seen(find_ranks(table)) == [(12, 3, "rank", -1)]


def test_a_nodes_number_is_not_a_rank() -> None:
    """`srun torchrun`, and a launcher of one's own: the ranks below have RANK."""
    node = {"SLURM_PROCID": "1", "SLURM_JOB_ID": "9", "SLURM_STEP_ID": "0"}
    for launcher in ("python -m torch.distributed.run train.py", "python start_all.py"):
        table = ProcessTable.of(
            [
                python(10, command=launcher, **node),
                python(11, 10, RANK="8", **node),
                python(12, 10, RANK="9", **node),
            ]
        )
        assert seen(find_ranks(table)) == [(11, 8, "rank", -1), (12, 9, "rank", -1)]


def test_a_batch_script_is_no_rank_beside_those_that_it_starts() -> None:
    """It has SLURM_PROCID=0, and srun's tasks are no children of it."""
    batch = {"SLURM_PROCID": "0", "SLURM_JOB_ID": "9", "SLURM_TASKS_PER_NODE": "1(x2)"}
    table = ProcessTable.of(
        [python(10, command="python submit.py", **batch), python(20, **batch, SLURM_STEP_ID="0")]
    )
    assert seen(find_ranks(table)) == [(20, 0, "rank", -1)]


def test_whoever_asks_is_skipped() -> None:
    """Under srun the collector itself has a rank's variables."""
    table = ProcessTable.of([python(10, PMI_RANK="0"), python(11, PMI_RANK="0")])
    assert seen(find_ranks(table, skip=[11])) == [(10, 0, "rank", -1)]


@pytest.mark.parametrize("rank", ["", "-1", "x", "1e3", "99999999999", "²"])
def test_nonsense_is_no_rank(rank: str) -> None:
    """What is no number is no rank, nor is an absurd one."""
    assert find_ranks(ProcessTable.of([python(10, RANK=rank)])) == []


def test_marks_come_before_the_environment() -> None:
    """A process that marked itself is the rank; one that marked itself a helper is none."""
    me = os.getpid()
    mark = Mark(
        pid=me,
        start_ticks=start_ticks(me),
        host=socket.gethostname(),
        role="rank",
        rank=6,
        world_size=8,
        job_id="marked",
    )
    table = ProcessTable.of([python(me, RANK="0"), python(me + 1, me, RANK="6")])
    (first, helper) = find_ranks(table, [mark])
    assert (first.rank, first.how, first.world_size, first.job) == (6, "mark", 8, "marked")
    assert (helper.role, helper.parent_rank) == ("helper", 6)
    table = ProcessTable.of([python(me, RANK="0")])
    assert find_ranks(table, [replace(mark, role="helper", rank=None)]) == []


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        ("/opt/venv/bin/python3 -u -X dev /opt/venv/bin/torchrun train.py", True),
        ("python -m torch.distributed.run train.py", True),
        ("python -m unhang.cli stacks", True),
        ("python /opt/venv/bin/accelerate launch train.py", True),
        ("python train.py --launcher torchrun", False),
        ("python -c import torch", False),
        ("python", False),
    ],
)
def test_launchers_are_known_by_what_they_run(command: str, launcher: bool) -> None:  # noqa: FBT001 - a table of expectations
    """The program counts, not a word among its arguments."""
    assert is_launcher(python(1, command=command)) is launcher


def test_trees_and_all_pythons() -> None:
    """--tree keeps the roles of ranks, --all-python labels launchers."""
    table = ProcessTable.of(
        [python(10, command="python /bin/torchrun"), python(11, 10, RANK="0"), other(12, 11, "sh")]
    )
    ranks = find_ranks(table)
    assert seen(below(table, 10, ranks)) == [
        (10, -1, "unknown", -1),
        (11, 0, "rank", -1),
        (12, -1, "unknown", -1),
    ]
    assert seen(python_processes(table, ranks)) == [
        (10, -1, "launcher", -1),
        (11, 0, "rank", -1),
    ]


def test_loops_in_a_table_end() -> None:
    """A table read while processes come and go may hold any nonsense."""
    table = ProcessTable.of([python(1, 2), python(2, 1)])
    assert [p.pid for p in table.below(1)] == [1, 2]
    assert [p.pid for p in table.above(1)] == [2]


def fake_process(proc: Path, pid: int, stat: str | None = None) -> Path:
    """A folder like those of /proc."""
    folder = proc / str(pid)
    folder.mkdir()
    numbers = " ".join(["1", *["0"] * 9, "250", "50", *["0"] * 6, "777", "0"])
    (folder / "stat").write_text(stat or f"{pid} (a (b) c) D {numbers}")
    (folder / "status").write_text("Name:\tx\nTracerPid:\t42\nUid:\t1000\t1000\t1000\t1000\n")
    (folder / "cmdline").write_bytes(b"/usr/bin/python3\0train.py\0--x=\xff\0")
    (folder / "environ").write_bytes(b"RANK=3\0SECRET_TOKEN=abc\0")
    (folder / "wchan").write_text("nfs_wait_bit_killable")
    (folder / "exe").symlink_to("/usr/bin/python3.11")
    return folder


def test_a_process_is_read_from_proc(tmp_path: Path) -> None:
    """Names with brackets, other users, traced, uninterruptible; secrets are not kept."""
    fake_process(tmp_path, 5)
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "comm").write_text("gdb\n")
    process = read_process(5, tmp_path)
    assert process is not None
    assert (process.ppid, process.start_ticks, process.state, process.name) == (
        1,
        777,
        "D",
        "a (b) c",
    )
    assert (process.uid, process.tracer, process.python) == (1000, 42, True)
    assert process.tracer_name == "gdb"
    assert process.wait_channel == "nfs_wait_bit_killable"
    assert process.environ == {"RANK": "3"}
    assert process.cpu_s == 300 / os.sysconf("SC_CLK_TCK")


def test_half_read_processes_are_left_out(tmp_path: Path) -> None:
    """A process that ends meanwhile leaves an empty or broken folder, or none."""
    fake_process(tmp_path, 5, stat="5 (x) S")
    fake_process(tmp_path, 6, stat="garbage")
    (tmp_path / "7").mkdir()
    (tmp_path / "self").mkdir()
    fake_process(tmp_path, 8)
    (tmp_path / "8" / "environ").unlink()
    (tmp_path / "8" / "exe").unlink()
    table = read_processes(tmp_path)
    assert list(table.by_pid) == [8]
    assert table.by_pid[8].environ is None
    assert table.by_pid[8].python


def test_this_very_process_is_there() -> None:
    """The real /proc can be read."""
    process = read_processes().by_pid[os.getpid()]
    assert process.python
    assert process.cpu_s >= 0


def test_children_of_a_process_that_may_become_a_rank_are_not_it() -> None:
    """A process between fork and exec has everything of its parent, which has not joined yet."""
    me = os.getpid()
    mark = Mark(
        pid=me, start_ticks=start_ticks(me), host=socket.gethostname(),
        phase="initialising", env_rank=1,
    )  # fmt: skip
    table = ProcessTable.of([python(me, RANK="1"), python(me + 1, me, RANK="1")])
    assert find_ranks(table, [mark]) == []
    launcher = replace(mark, role="launcher", phase="imported")
    assert seen(find_ranks(table, [launcher])) == [(me + 1, 1, "rank", -1)]


ENGINE = (
    other(20, 1, "bash serve.sh"),
    python(21, 20, "python vllm serve model"),
    python(22, 21, "VLLM::EngineCore"),
    python(23, 22, "VLLM::Worker_TP0"),
    python(24, 22, "VLLM::Worker_TP1"),
)


def test_workers_of_an_engine_tell_their_ranks_by_their_titles() -> None:
    """What gives them orders belongs to their job; the shell that started it does not."""
    found = find_ranks(ProcessTable.of(ENGINE))
    assert seen(found) == [
        (23, 0, "rank", -1),
        (24, 1, "rank", -1),
        (21, -1, "engine", -1),
        (22, -1, "engine", -1),
    ]
    assert {(t.job, t.how) for t in found} == {("engine-22", "title")}
    assert found[0].world_size == 2


def test_schedulers_of_two_coordinates_are_no_ranks() -> None:
    """Nothing tells how they are counted; the detokenizer beside them is of the engine."""
    table = ProcessTable.of(
        [
            python(30, command="python -m sglang.launch_server"),
            python(31, 30, "sglang::scheduler_PP0_TP0"),
            python(32, 30, "sglang::scheduler_PP1_TP0"),
            python(33, 30, "sglang::detokenizer"),
        ]
    )
    roles = {pid: (rank, role) for pid, rank, role, _ in seen(find_ranks(table))}
    assert roles == {
        30: (-1, "engine"),
        31: (-1, "unknown"),
        32: (-1, "unknown"),
        33: (-1, "engine"),
    }


def test_an_engine_whose_workers_died_is_there() -> None:
    """Its dead children are what it has not collected."""
    dead = replace(other(23, 22, ""), state="Z")
    table = ProcessTable.of([*ENGINE[:3], dead])
    assert {pid: role for pid, _, role, _ in seen(find_ranks(table))} == {
        21: "engine",
        22: "engine",
        23: "engine",
    }


def test_beside_a_trainers_ranks_those_of_an_engine_are_none() -> None:
    """Two jobs count for themselves: a number is that of one rank."""
    trainer = [python(10, RANK="0", **TORCHRUN), python(11, RANK="1", **TORCHRUN)]
    mixed = of_one_job(find_ranks(ProcessTable.of([*trainer, *ENGINE])))
    assert {t.process.pid: (t.rank, t.role) for t in mixed if t.process.pid != 22} == {
        10: (0, "rank"),
        11: (1, "rank"),
        21: (-1, "engine"),
        23: (-1, "engine"),
        24: (-1, "engine"),
    }
    alone = find_ranks(ProcessTable.of(ENGINE))
    assert of_one_job(alone) == alone
