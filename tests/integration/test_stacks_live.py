"""Eight real ranks, stuck in four ways: found, sampled, merged, judged, saved and read again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from eight_stuck import (
    EXPECTED_CAUSES,
    LOADING,
    PROGRAM,
    RANKS,
    STOPPED,
    all_stuck,
    causes,
    expected_tree,
)
from patience import PATIENCE_S, wait_for
from ports import free_port

from unhang.collect.processes import read_processes
from unhang.collect.ranks import Target
from unhang.collect.samplers import find_program
from unhang.collect.sampling import sample_processes


@dataclass(frozen=True)
class Job:
    """The running job: its id and the processes by rank."""

    name: str
    pids: dict[int, int]


def unhang(*words: object, **more: object) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    return subprocess.run(
        [sys.executable, "-m", "unhang", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        **more,  # type: ignore[call-overload]  # further arguments of subprocess.run
    )


@pytest.fixture(scope="module")
def job() -> Iterator[Job]:
    """Eight ranks: most in all_reduce, one stopped there, one loading data, one with the GIL."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    reading, writing = os.pipe()
    environ = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(RANKS),
        "UNHANG_JOB": name,
        "READY": f"/proc/self/fd/{writing}",
        "OMP_NUM_THREADS": "1",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            env={**environ, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            pass_fds=[writing],
            start_new_session=True,
        )
        for rank in range(RANKS)
    ]
    os.close(writing)
    try:
        told = b""
        while len(told) < RANKS:
            more = os.read(reading, RANKS)
            assert more, "a rank ended before it was ready"
            told += more
        wait_for(lambda: all_stuck(name), "all ranks at their places")
        os.kill(processes[STOPPED].pid, signal.SIGSTOP)
        yield Job(name, {rank: process.pid for rank, process in enumerate(processes)})
    finally:
        os.close(reading)
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
        for process in processes:
            process.wait()


@pytest.fixture(scope="module")
def shown(job: Job, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What the command shows of the job, and the stacks that it saved."""
    saved = tmp_path_factory.mktemp("saved") / "stacks.json"
    done = unhang("stacks", "--job", job.name, "--save", saved, "--interval", "0.3")
    assert done.returncode == 1, done.stderr
    return done.stdout, saved


def test_one_tree_holds_all_ranks_the_odd_ones_first(shown: tuple[str, Path]) -> None:
    """Ranges, meanings, states and lines are right, and nothing else is in the tree."""
    text, _ = shown
    tree = text[text.index("\nranks 0-7 (8)\n") + 1 :]
    assert tree.splitlines() == expected_tree()


def test_saved_stacks_alone_name_the_culprits(shown: tuple[str, Path], tmp_path: Path) -> None:
    """No dumps, no processes: the file gives the verdict, to stacks and to diagnose."""
    _, saved = shown
    case = tmp_path / "case" / "stacks"
    case.mkdir(parents=True)
    (case / "node01.json").write_bytes(saved.read_bytes())
    for words in (["stacks", saved], ["diagnose", case.parent]):
        done = unhang(*words, "--format", "json")
        assert done.returncode == 1, done.stderr
        assert causes(done.stdout) == EXPECTED_CAUSES


@pytest.mark.debian("gdb")
def test_what_people_save_by_hand_gives_the_same(job: Job, tmp_path: Path) -> None:
    """py-spy's text and JSON, pystack's and gdb's reports, one file a rank."""
    by_tool = {
        0: [find_program("py-spy"), "dump", "--pid"],
        1: [find_program("py-spy"), "dump", "--json", "--pid"],
        3: [find_program("pystack"), "remote"],
        4: [find_program("pystack"), "remote", "--native"],
        5: [find_program("py-spy"), "dump", "--native", "--pid"],
        7: ["gdb", "-batch", "-nx", "-ex", "thread apply all bt", "-p"],
    }
    for rank, command in by_tool.items():
        with (tmp_path / f"rank_{rank}.txt").open("w") as file:
            subprocess.run(
                [*command, str(job.pids[rank])], stdout=file, check=True, timeout=PATIENCE_S
            )
    done = unhang("stacks", tmp_path, "--format", "json")
    assert causes(done.stdout) == [("UH101", [5], [0, 1, 3, 4, 7])]
    ops = {call["op"] for call in json.loads(done.stdout)["findings"][0]["calls"]}
    assert "all_reduce" in ops


def test_one_process_or_a_family_can_be_chosen(job: Job) -> None:
    """--pid keeps the rank; --tree shows the data-loader worker below its rank."""
    one = unhang("stacks", "--pid", job.pids[0], "--samples", "1")
    assert "ranks 0 (1)" in one.stdout
    family = unhang(
        "stacks", "--tree", job.pids[LOADING], "--samples", "1", "--format", "collapsed"
    )
    lanes = {line.split(";")[0] for line in family.stdout.splitlines()}
    assert lanes == {"ranks", "data-loader workers of ranks"}


def test_native_frames_are_there_when_asked_for(job: Job) -> None:
    """--native shows where Gloo waits below Python."""
    done = unhang("stacks", "--pid", job.pids[0], "--samples", "1", "--native", "--full")
    assert "gloo" in done.stdout or "c10d" in done.stdout


def test_partial_trees_merge_to_the_whole(shown: tuple[str, Path], tmp_path: Path) -> None:
    """What two nodes write as trees merges into the tree of all."""
    _, saved = shown
    document = json.loads(saved.read_text())
    for node, ranks in enumerate((range(4), range(4, 8))):
        part = document | {
            "samples": [
                s
                for s in document["samples"]
                if s["rank"] in ranks or s.get("parent_rank", -1) in ranks
            ]
        }
        (tmp_path / f"{node}.json").write_text(json.dumps(part))
        done = unhang("stacks", tmp_path / f"{node}.json", "--format", "tree", "-o",
                      tmp_path / f"{node}.tree")  # fmt: skip
        assert done.returncode in (0, 1, 3), done.stderr
    whole = unhang("stacks", saved, "--format", "collapsed").stdout
    merged = unhang("stacks", tmp_path / "0.tree", tmp_path / "1.tree", "--format", "collapsed")
    assert merged.stdout == whole


@pytest.mark.parametrize(
    ("words", "code", "message", "hint"),
    [
        (["--pid", "4194303"], 3, "there is no process 4194303", "ps -ef"),
        (["--tree", "4194303"], 3, "there is no process 4194303", "ps -ef"),
        (["--pid", "0"], 2, "a process id is above 0", "ps -ef"),
        (["--samples", "0"], 2, "--samples 0 is out of bounds", "1 to 100"),
        (["--job", "no-such-job"], 3, "no rank of job no-such-job runs here", "There are:"),
        (["/no/such/file"], 3, "/no/such/file does not exist", "saved stacks"),
        ([str(PROGRAM)], 3, "found no stacks", "py-spy"),
        (["--native", "x", "--pid", "1"], 2, "PATH is for saved stacks", "one or the other"),
    ],
)
def test_bad_input_is_answered_in_a_sentence(
    words: list[str], code: int, message: str, hint: str
) -> None:
    """A clear sentence, a hint and the right exit code; never a traceback."""
    done = unhang("stacks", *words)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert hint in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_no_python_says_so() -> None:
    """Another program, and a Python that ends while it is looked at."""
    with subprocess.Popen(["sleep", "1000"]) as sleeper:
        done = unhang("stacks", "--pid", sleeper.pid)
        sleeper.kill()
    assert done.returncode == 3
    assert "it is not a Python process" in done.stderr


def test_a_process_that_ends_between_looks_is_told(tmp_path: Path) -> None:
    """The first look is kept, the second says that it ended; the others are unaffected."""
    fifo = tmp_path / "ready"
    os.mkfifo(fifo)
    program = f"open({str(fifo)!r}, 'w').close(); import time; time.sleep(1000)"
    child = subprocess.Popen([sys.executable, "-c", program])
    with fifo.open():
        pass
    (target,) = [
        Target(process) for pid, process in read_processes().by_pid.items() if pid == child.pid
    ]

    def end(_: float) -> None:
        child.kill()
        child.wait()

    first, second = sample_processes([target], looks=2, sleep=end).samples
    assert first.threads
    assert (second.threads, second.error) == ((), "it ended before unhang could sample it")


AS_ANOTHER_USER = """
import os, resource, sys
import numpy, rich.console, rich.table, unhang.cli.verdicts.stacks
import unhang.analysis, unhang.reports.text
import unhang.collect.sampling, unhang.record.contact.marks, unhang.stacks.tree.prefix_tree
os.setgroups([]); os.setgid(65534); os.setuid(65534)
from unhang.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def as_another_user(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the command line as nobody."""
    return subprocess.run(
        [sys.executable, "-c", AS_ANOTHER_USER, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_users_process_is_explained(job: Job) -> None:
    """No permission: whose it is, and the command that solves it."""
    done = as_another_user("stacks", "--pid", job.pids[0])
    assert done.returncode == 3, done.stdout
    assert f"process {job.pids[0]} belongs to user root (0)" in done.stderr
    assert f"sudo unhang stacks --pid {job.pids[0]}" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_users_ranks_are_not_seen_and_that_is_said(job: Job) -> None:
    """Who may not read environments finds no ranks; the hint says why."""
    assert job.pids
    done = as_another_user("stacks")
    assert done.returncode == 3, done.stdout
    assert "no rank of any job was found on this node" in done.stderr
    assert "Python processes of other users hide their environment" in done.stderr
