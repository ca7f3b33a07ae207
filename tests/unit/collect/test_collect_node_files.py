from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from unhang.collect.asking import DumpRequest, RankDumps
from unhang.collect.node import dumps as node_dumps
from unhang.collect.node.dumps import AskingTerms, Dumps, ask_for_dumps, find_dumps
from unhang.collect.node.logs import take_logs
from unhang.collect.processes import Process, read_process
from unhang.collect.ranks import Target
from unhang.record.contact.marks import Mark

RANK = 4_321


@pytest.fixture
def process() -> Process:
    """This process, which began before its files were made."""
    found = read_process(os.getpid())
    assert found is not None
    return found


def target(process: Process, **environ: str) -> Target:
    """It as a rank with these variables."""
    return Target(replace(process, environ=environ), rank=RANK)


def found(*targets: Target, patterns: tuple[str, ...] = ()) -> Dumps:
    """What lies at the usual places and at those that were named."""
    dumps = Dumps()
    find_dumps(targets, patterns, dumps)
    return dumps


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("TORCH_FR_DUMP_TEMP_FILE", "{place}/fr_"),
        ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "{place}/nccl_"),
        ("XDG_CACHE_HOME", "{place}/torch/comm_lib_trace_rank_"),
        ("HOME", "{place}/.cache/torch/comm_lib_trace_rank_"),
    ],
)
def test_dumps_lie_where_versions_of_torch_put_them(
    variable: str, name: str, process: Process, tmp_path: Path
) -> None:
    """Told by a variable, or in the cache."""
    place = Path(f"{name.format(place=tmp_path)}{RANK}")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"dump")
    told = str(place)[: -len(str(RANK))] if variable.startswith("TORCH") else str(tmp_path)
    dumps = found(target(process, **{variable: told}))
    assert dumps.files == {f"dumps/nccl/rank_{RANK}": place}
    assert dumps.came == {RANK: [f"dumps/nccl/rank_{RANK}"]}


def test_a_dump_that_is_older_than_its_rank_is_left_out(process: Process, tmp_path: Path) -> None:
    """It is of another job; that is said."""
    path = tmp_path / f"fr_{RANK}"
    path.write_bytes(b"dump")
    os.utime(path, (1, 1))
    dumps = found(target(process, TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/fr_"))
    assert dumps.files == {}
    assert dumps.notes == [f"{path} is older than rank {RANK}: left out"]


def test_named_files_keep_their_names(tmp_path: Path) -> None:
    """Which tell ranks; equal names do not hide each other, and nothing found is said."""
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "rank 7").write_bytes(b"dump")
    dumps = found(patterns=(f"{tmp_path}/*/rank*", f"{tmp_path}/none*"))
    assert dumps.files == {
        "dumps/found/rank_7": tmp_path / "a" / "rank 7",
        "dumps/found/2/rank_7": tmp_path / "b" / "rank 7",
    }
    assert dumps.notes == [f"--dumps {tmp_path}/none*: no file that can be read"]


def test_nccls_pipe_is_asked(process: Process, tmp_path: Path) -> None:
    """A word into the pipe, and the file that the watchdog then writes."""
    pipe, place = tmp_path / f"pipe_{RANK}.pipe", tmp_path / f"fr_{RANK}"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def watchdog() -> None:
        os.set_blocking(end, True)
        while os.read(end, 10) != b"1\n":
            pass
        place.write_bytes(b"dump")

    thread = threading.Thread(target=watchdog, daemon=True)
    writer = os.open(pipe, os.O_WRONLY)  # so that the watchdog's read waits for a word
    thread.start()
    asked = target(
        process,
        TORCH_NCCL_DEBUG_INFO_PIPE_FILE=f"{tmp_path}/pipe_",
        TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/fr_",
    )
    dumps = ask_for_dumps([asked], [], AskingTerms(tmp_path, "i1"))
    thread.join()
    os.close(writer)
    os.close(end)
    assert dumps.files == {f"dumps/nccl/rank_{RANK}": place}
    assert dumps.missing == {}


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({}, "no recorder of unhang is armed in it; torch's"),
        ({"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "/no/such/"}, "NCCL's pipe: No such file"),
        ({"TORCH_WORKER_SERVER_SOCKET": "/no/such/socket"}, "no recorder of unhang"),
    ],
)
def test_why_a_rank_wrote_nothing(
    environ: dict[str, str], why: str, process: Process, tmp_path: Path
) -> None:
    """Each of the ways says what it lacks."""
    dumps = ask_for_dumps([target(process, **environ)], [], AskingTerms(tmp_path, "i1"))
    assert dumps.files == {}
    assert dumps.missing[RANK].startswith(why)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose output goes to a file."""
    code = "import sys; print('x' * 99 + '\\n' + 'the end'); sys.stdout.flush(); sys.stdin.read()"
    with (tmp_path / "train.log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.DEVNULL,
        )
    while not (tmp_path / "train.log").read_bytes().endswith(b"the end\n"):
        assert child.poll() is None
    yield child
    child.communicate()


def test_logs_are_where_ranks_write(writer: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """The end of the file behind standard output, error files, and what people named."""
    error = tmp_path / "error.json"
    error.write_text('{"message": "boom"}')
    (tmp_path / "other.out").write_text("other")
    rank = Target(
        Process(pid=writer.pid, environ={"TORCHELASTIC_ERROR_FILE": str(error)}), rank=RANK
    )
    logs, notes = take_logs([rank], [f"{tmp_path}/*.out", f"{tmp_path}/none"], 20)
    assert logs == {
        f"rank_{RANK}.train.log": b"the end\n",
        f"rank_{RANK}.error.json": b'{"message": "boom"}',
        "other.out": b"other",
    }
    assert notes == [f"log {tmp_path}/none: no such file"]


def test_a_log_of_several_ranks_comes_once(writer: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """Under its own name, also when it was deleted; what is no file is not read."""
    os.mkfifo(tmp_path / "fifo.out")
    ranks = [Target(Process(pid=writer.pid), rank=rank) for rank in (0, 1)]
    logs, notes = take_logs(ranks, [f"{tmp_path}/fifo.out"], 1 << 20)
    assert list(logs) == ["train.log"]
    assert notes == [f"{tmp_path}/fifo.out cannot be read"]
    (tmp_path / "train.log").unlink()
    logs, notes = take_logs(ranks, [], 1 << 20)
    assert logs["train.log"].endswith(b"the end\n")


def test_a_rank_that_two_processes_claim_costs_nobody_a_dump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is asked in a place of its own; of two dumps of one rank one is kept, and it is said."""

    def answer(mark: Mark, request: DumpRequest) -> RankDumps:
        place = request.directory / "gloo"
        place.mkdir()
        (place / f"rank_{mark.rank}").write_bytes(b"dump of %d" % mark.pid)
        return RankDumps()

    monkeypatch.setattr(node_dumps, "ask_recorder", answer)
    pids = {7: 0, 8: 0, 9: 1}
    ranks = [Target(Process(pid), rank=rank, role="rank") for pid, rank in pids.items()]
    marks = [Mark(pid, 1, rank=rank) for pid, rank in pids.items()]
    came = ask_for_dumps(ranks, marks, AskingTerms(tmp_path, "incident"))
    assert sorted(came.files) == ["dumps/gloo/rank_0", "dumps/gloo/rank_1"]
    assert came.notes == ["a further dump of rank 0 (gloo) is left out"]
    assert came.missing == {}
