"""The examples of docs/from-the-guides.md, on a real job that hangs: each does what is said."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from armed_jobs import free_port

PAGE = Path(__file__).parents[2] / "docs" / "from-the-guides.md"
BIN = Path(sys.executable).parent

PROGRAM = """\
import faulthandler
import os
import pickle
import signal
import sys
import threading

import torch
import torch.distributed as dist

HERE = sys.argv[1]


def load_batch():
    with open(f"{HERE}/fifo") as fifo:
        return fifo.read()


def keep_trace():
    while True:  # until the watchdog has seen that the first three are over
        trace = torch._C._distributed_c10d._dump_fr_trace()
        if all(entry["retired"] for entry in pickle.loads(trace)["entries"][:3]):
            break
    with open(f"{HERE}/fr{dist.get_rank()}", "wb") as file:
        file.write(trace)
    print("ready", flush=True)


def train():
    for step in range(4):
        x = torch.ones(4) * step
        if step == 3 and dist.get_rank() == 1:
            keep_trace()
            load_batch()
        if step == 3:
            later = threading.Timer(2, keep_trace)
            later.start()
        # the others wait here
        dist.all_reduce(x)


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    dist.init_process_group("gloo")
    train()
"""


@dataclass(frozen=True)
class Hung:
    """The job: where it lies, and the process of each rank."""

    place: Path
    pids: tuple[int, int]

    def errors(self, rank: int) -> str:
        """What a rank wrote to stderr so far."""
        return (self.place / f"err{rank}").read_text()


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hung]:
    """Two ranks, of which one never comes to the fourth all_reduce."""
    place = tmp_path_factory.mktemp("guides")
    (place / "train.py").write_text(PROGRAM)
    os.mkfifo(place / "fifo")
    job = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
           "TORCH_FR_BUFFER_SIZE": "2000", "OMP_NUM_THREADS": "1"}  # fmt: skip
    ranks = []
    for rank in range(2):
        with (place / f"err{rank}").open("w") as errors:
            ranks.append(
                subprocess.Popen(
                    [sys.executable, "train.py", str(place)], cwd=place, text=True,
                    stdout=subprocess.PIPE, stderr=errors,
                    env={**os.environ, **job, "RANK": str(rank)},
                )
            )  # fmt: skip
    for process in ranks:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    yield Hung(place, (ranks[0].pid, ranks[1].pid))
    for process in ranks:
        process.kill()
        process.wait()


def piped(words: list[str], pasted: str = "") -> str:
    """What a command of ours says; its verdict must be read, whatever its exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "unhang", *words], input=pasted, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1, 3), done.stderr
    return done.stdout


def flat(text: str) -> str:
    """A text without its line breaks."""
    return " ".join(text.split())


def on_the_page(sentence: str) -> None:
    """Check that the page shows this, with its own process id."""
    assert flat(re.sub(r"\b\d{3,7}\b(?! \()", "4711", sentence)) in flat(PAGE.read_text())


def dumped(pid: int, line: str, *options: str) -> str:
    """What py-spy prints of a process once it stands at a line."""
    while True:
        done = subprocess.run(
            [BIN / "py-spy", "dump", *options, "--pid", str(pid)], capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        if line in done.stdout:
            return done.stdout
        time.sleep(0.1)


def test_the_traces_of_the_recorder(hung: Hung) -> None:
    """Named as the variable says: a prefix and the rank."""
    said = flat(piped(["diagnose", str(hung.place / "fr*")]))
    sentence = "Rank 1 never called all_reduce #4 of default_pg (0), in which rank 0 waits."
    assert sentence in said
    assert sentence in flat(PAGE.read_text())
    entries = piped(["entries", *(str(hung.place / f"fr{rank}") for rank in (0, 1))])
    assert "all_reduce *" in entries
    one = piped(["entries", str(hung.place / "fr0"), "--ranks", "0", "--stacks"])
    assert "train.py" in one


def test_a_trace_in_memory(hung: Hung) -> None:
    """The bytes that the tutorial's function returned."""
    import unhang

    traces = [(hung.place / f"fr{rank}").read_bytes() for rank in (0, 1)]
    assert unhang.diagnose(unhang.load(traces)).culprits == (1,)
    assert unhang.diagnose(unhang.load(traces[0])).status == "insufficient"


def test_one_pasted_dump(hung: Hung) -> None:
    """With its line, and without a rank."""
    text = dumped(hung.pids[1], "load_batch (train.py:15)")
    said = flat(piped(["stacks", "-"], text)).partition(" about ")[0]
    assert f"process {hung.pids[1]} is in user code at load_batch (train.py:15)" in said
    on_the_page(said)


@pytest.mark.parametrize("cut", [False, True])
def test_dumps_of_all_ranks(hung: Hung, *, cut: bool) -> None:
    """Glued together, also through `grep -A5 MainThread`."""
    text = dumped(hung.pids[0], "all_reduce") + dumped(hung.pids[1], "load_batch (train.py:15)")
    if cut:
        text = subprocess.run(
            ["grep", "-A5", "MainThread"], input=text, capture_output=True, text=True, check=True
        ).stdout
    said = flat(piped(["stacks", "-"], text)).partition(" about ")[0]
    assert "waiting in all_reduce at train (train.py:39)" in said
    assert f"process {hung.pids[1]} is in user code at load_batch (train.py:15)" in said
    on_the_page(said)


def test_a_dump_as_json(hung: Hung) -> None:
    """`py-spy dump --json`."""
    text = dumped(hung.pids[1], "load_batch", "--json")
    assert "load_batch (train.py:15)" in flat(piped(["stacks", "-"], text))


def test_files_of_nodes(hung: Hung, tmp_path: Path) -> None:
    """`srun --output=trace-%N.out`."""
    for name, pid, line in (("n1", hung.pids[0], "all_reduce"), ("n2", hung.pids[1], "load_batch")):
        (tmp_path / f"trace-{name}.out").write_text(dumped(pid, line))
    said = flat(piped(["stacks", *map(str, sorted(tmp_path.iterdir()))]))
    assert f"process {hung.pids[1]} on n2 is in user code at load_batch (train.py:15)" in said


def test_faulthandler(hung: Hung, tmp_path: Path) -> None:
    """`kill -USR1 PID`, and what it printed."""
    os.kill(hung.pids[1], signal.SIGUSR1)
    while "train.py" not in (text := hung.errors(1)):
        time.sleep(0.1)
    (tmp_path / "stderr.txt").write_text(text)
    assert "load_batch (train.py:15)" in flat(piped(["stacks", str(tmp_path / "stderr.txt")]))


@pytest.mark.debian("gdb")
def test_gdb(hung: Hung) -> None:
    """`thread apply all bt` of an attached process."""
    words = ["gdb", "-p", str(hung.pids[0]), "-batch", "-ex", "thread apply all bt"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "is waiting in c10d::" in flat(piped(["stacks", "-"], done.stdout))


@pytest.mark.debian("strace")
def test_strace(hung: Hung, tmp_path: Path) -> None:
    """What it waits in; a full disk; a program from its start."""
    said = flat(piped(["trace", "--syscalls", str(hung.pids[1]), "--seconds", "1"]))
    assert "waited in openat" in said
    raw = tmp_path / "strace.txt"
    program = "f = open('/dev/full', 'w'); f.write('x' * 100000)"
    words = ["strace", "-y", "-e", "trace=openat,write", "-o", str(raw), sys.executable, "-c"]
    subprocess.run([*words, program], stderr=subprocess.DEVNULL, check=False)
    said = flat(piped(["trace", "--syscalls", str(raw)]))
    failed = "The process failed in write on /dev/full: ENOSPC (no space left on device)."
    assert failed in said
    assert failed in flat(PAGE.read_text())


def test_every_command_of_the_page_parses() -> None:
    """All that stands in the column of ours is a command line of ours."""
    from unhang.cli.main import COMMANDS

    found = re.findall(r"`(?:\w+=\S* )*unhang (\w+)", PAGE.read_text())
    assert len(found) > 20
    assert set(found) <= {entry.name for entry in COMMANDS}
