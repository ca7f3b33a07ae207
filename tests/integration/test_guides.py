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
from guide_page import PAGE, examples, flat, not_run, on_the_page
from ports import free_port
from run_jobs import run_job

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
    """The job: where it lies, the process of each rank, and its name."""

    place: Path
    pids: tuple[int, int]
    job: str

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
           "TORCH_FR_BUFFER_SIZE": "2000", "OMP_NUM_THREADS": "1",
           "UNHANG_JOB": f"guides-{os.getpid()}"}  # fmt: skip
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
    yield Hung(place, (ranks[0].pid, ranks[1].pid), job["UNHANG_JOB"])
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


def test_the_traces_of_the_recorder(hung: Hung, tmp_path: Path) -> None:
    """Named as the variable says; and all that torch's analyser has options for."""
    said = piped(["diagnose", str(hung.place / "fr*"), "-v"])
    on_the_page("TORCH_FR_BUFFER_SIZE=2000", said)
    on_the_page("torchfrtrace --mismatch_cap N DIR", said)
    folders = {"plain": "nccl_trace_rank_{}", "odd": "part-{}x", "one": "nccl_trace_rank_{}"}
    for folder, name in folders.items():
        (tmp_path / folder).mkdir()
        for rank in (0,) if folder == "one" else (0, 1):
            trace = (hung.place / f"fr{rank}").read_bytes()
            (tmp_path / folder / name.format(rank)).write_bytes(trace)
    plain = str(tmp_path / "plain")
    on_the_page("torchfrtrace DIR", piped(["diagnose", plain]))
    odd = piped(["diagnose", str(tmp_path / "odd"), "--rank-pattern", r"part-(\d+)x$"])
    on_the_page("torchfrtrace --prefix nccl_trace_rank_ DIR", odd)
    on_the_page(
        "torchfrtrace --allow-incomplete-ranks DIR", piped(["diagnose", str(tmp_path / "one")])
    )
    replicas = piped(["diagnose", plain, "--group-world-size", "2"])
    on_the_page("torchfrtrace --transform-ft --group-world-size N DIR", replicas)
    on_the_page("torchfrtrace -j DIR", piped(["entries", plain]))
    on_the_page("torchfrtrace -j --selected-ranks", piped(["entries", plain, "--ranks", "0"]))
    by_group = piped(["entries", plain, "--group", "default_pg"])
    on_the_page("torchfrtrace -j --pg-filters tp DIR", by_group)
    stacks = piped(["entries", str(hung.place / "fr*"), "--stacks"])
    on_the_page("torchfrtrace --print_stack_trace DIR", stacks)
    on_the_page("for e in pickle.load(open(", stacks)


def test_a_trace_in_memory(hung: Hung) -> None:
    """The bytes that the tutorial's function returned."""
    import unhang

    traces = [(hung.place / f"fr{rank}").read_bytes() for rank in (0, 1)]
    report = unhang.diagnose(unhang.load(traces))
    on_the_page("torch._C._distributed_c10d._dump_nccl_trace()", report.summary)
    assert unhang.diagnose(unhang.load(traces[0])).status == "insufficient"


FRAMES_OF_A_CALL = """\
import pickle
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(4))
trace = pickle.loads(torch._C._distributed_c10d._dump_fr_trace())
print([frame["name"] for frame in trace["entries"][-1]["frames"]])
"""


def test_frames_of_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorder of torch keeps them, by the variables that `run` sets."""
    job = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
           "MASTER_PORT": str(free_port())}  # fmt: skip
    for name, value in job.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "job.py").write_text(FRAMES_OF_A_CALL)
    options = ("--cpp-stacks", "--symbolize", "fast")
    outcome = run_job(tmp_path, options, [sys.executable, "job.py"])
    assert outcome.code == 0, outcome.said
    on_the_page("TORCH_NCCL_TRACE_CPP_STACK=1 TORCH_SYMBOLIZE_MODE=fast", outcome.said)


DESYNC = """\
[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, \
NumelIn=4, NumelOut=4, Timeout(ms)=8000) ran for 8097 milliseconds before timing out.
 - [0] Timeout at collective: ALLREDUCE, #3
 - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:
     [1] finished collective #2, but didn't join collective #3 (count from 1)
"""
NET = "node:21288:21288 [0] NCCL INFO NET/Socket : Using [0]enp67s0:192.168.50.21<0>\n"
RAISED = """\
[{0}:0]  File "/path/to/training/dataset.py", line 785, in __init__
[{0}:1]  File "/path/to/training/dataset.py", line 785, in __init__
[{0}:0]    if self.dataset_proba.sum() != 1:
[{0}:0]AttributeError: 'list' object has no attribute 'sum'
[{0}:1]    if self.dataset_proba.sum() != 1:
[{0}:1]AttributeError: 'list' object has no attribute 'sum'
"""


def test_logs_of_the_guides() -> None:
    """What they print of NCCL's watchdog and network, and of ranks behind the names of hosts."""
    on_the_page("TORCH_NCCL_DESYNC_DEBUG=1", piped(["logs", "-"], DESYNC))
    on_the_page("NCCL INFO NET/Socket", piped(["logs", "-", "-v"], NET))
    for host in ("host1", "5"):
        said = piped(["logs", "-"], RAISED.format(host))
        on_the_page("torchrun --role $(hostname -s): --tee 3 …", said)


def test_the_ranks_of_this_node(hung: Hung) -> None:
    """Found and looked at twice; one of them with its frames of C."""
    said = piped(["stacks", "--job", hung.job])
    on_the_page("for pid in $(pgrep -f train.py); do py-spy dump --pid $pid; done", said)
    said = piped(["stacks", "--native", "--pid", str(hung.pids[0])])
    on_the_page("py-spy dump -n -p PID", said)


def test_one_pasted_dump(hung: Hung) -> None:
    """With its line, and without a rank."""
    text = dumped(hung.pids[1], "load_batch (train.py:15)")
    on_the_page("py-spy dump --pid PID", piped(["stacks", "-"], text))


def test_dumps_of_all_ranks(hung: Hung) -> None:
    """Glued together, also through `grep -A5 MainThread`."""
    text = dumped(hung.pids[0], "all_reduce") + dumped(hung.pids[1], "load_batch (train.py:15)")
    on_the_page(
        "pgrep -P $(pgrep -o python) | xargs -I {} py-spy dump --pid {}",
        piped(["stacks", "-"], text),
    )
    words = ["grep", "-A5", "MainThread"]
    cut = subprocess.run(words, input=text, capture_output=True, text=True, check=True).stdout
    on_the_page("… | grep -A5 MainThread", piped(["stacks", "-"], cut))


def test_a_dump_as_json(hung: Hung) -> None:
    """`py-spy dump --json`."""
    text = dumped(hung.pids[1], "load_batch", "--json")
    on_the_page("py-spy dump --json --pid PID", piped(["stacks", "-"], text))


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
    said = piped(["stacks", str(tmp_path / "stderr.txt")])
    on_the_page("faulthandler.dump_traceback_later(300)", said)


ABORTS = """\
(gdb) bt
#0  0x0000147539887a9f in raise () from /lib64/libc.so.6
#1  0x000014753985ae05 in abort () from /lib64/libc.so.6
#2  0x000014751b85a09b in __gnu_cxx::__verbose_terminate_handler() [clone .cold.1] () from \
/lib64/libstdc++.so.6
#3  0x000014751b86053c in __cxxabiv1::__terminate(void (*)()) () from /lib64/libstdc++.so.6
#4  0x000014751b860597 in std::terminate() () from /lib64/libstdc++.so.6
#5  0x000014751b86052e in std::rethrow_exception(std::__exception_ptr::exception_ptr) () from \
/lib64/libstdc++.so.6
#6  0x000014750bb007ef in c10d::ProcessGroupNCCL::WorkNCCL::handleNCCLGuard() ()
   from .../python3.8/site-packages/torch/lib/libtorch_cuda_cpp.so
#7  0x000014750bb04c69 in c10d::ProcessGroupNCCL::workCleanupLoop() ()
   from.../python3.8/site-packages/torch/lib/libtorch_cuda_cpp.so
#8  0x000014751b88cba3 in execute_native_thread_routine () from /lib64/libstdc++.so.6
"""


@pytest.mark.debian("gdb")
def test_gdb(hung: Hung, tmp_path: Path) -> None:
    """All threads of an attached process, a thread that aborted as it was printed, and gcore."""
    words = ["gdb", "-p", str(hung.pids[0]), "-batch", "-ex", "thread apply all bt"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    on_the_page("(gdb) thread apply all bt", piped(["stacks", "-"], done.stdout))
    on_the_page("(gdb) bt", piped(["stacks", "-"], ABORTS))
    core = tmp_path / "core"
    words = ["gcore", "-o", str(core), str(hung.pids[1])]
    subprocess.run(words, capture_output=True, check=True)
    on_the_page("gcore PID", piped(["core", f"{core}.{hung.pids[1]}"]))
    (tmp_path / f"core.{hung.pids[1]}").unlink()


@pytest.mark.debian("strace")
def test_strace(hung: Hung, tmp_path: Path) -> None:
    """What it waits in, and on which file; a program from its start; what was written before."""
    live = piped(["trace", "--syscalls", str(hung.pids[1]), "--seconds", "1", "-v"])
    on_the_page("strace --pid PID", live)
    on_the_page("ls -l /proc/PID/fd", live)
    words = ["trace", "--syscalls", "--", sys.executable, "-c", "print('strace')"]
    done = subprocess.run(
        [sys.executable, "-m", "unhang", *words], capture_output=True, text=True, check=True
    )
    on_the_page("strace python -c ", done.stderr)
    launch = [BIN / "torchrun", "--standalone", "--nproc-per-node", "2", "--no-python", "true"]
    for follow, example in (
        ("-f", "strace -o log.txt -f torchrun …"),
        ("-ff", "strace -ff -o log …"),
    ):
        log = tmp_path / f"log{follow}"
        words = ["strace", "-o", str(log), follow, *launch] if follow == "-f" else [
            "strace", follow, "-o", str(log), "sh", "-c", "true & wait"]  # fmt: skip
        subprocess.run(words, capture_output=True, check=True)
        on_the_page(example, piped(["trace", "--syscalls", str(log)]))


@pytest.mark.debian("strace")
def test_a_full_disk(tmp_path: Path) -> None:
    """The file that could not be written, which no traceback tells."""
    raw = tmp_path / "strace.txt"
    program = "f = open('/dev/full', 'w'); f.write('x' * 100000)"
    words = ["strace", "-y", "-e", "trace=openat,write", "-o", str(raw), sys.executable, "-c"]
    subprocess.run([*words, program], stderr=subprocess.DEVNULL, check=False)
    example = "strace -y -e trace=openat,write -o strace.txt …; grep ENOSPC strace.txt"
    on_the_page(example, piped(["trace", "--syscalls", str(raw)]))


def test_this_node() -> None:
    """What a guide sets or looks up by hand, whatever this machine has."""
    said = piped(["doctor", "env", "gpu", "--format", "json"])
    for example in (
        "sudo sysctl -w kernel.yama.ptrace_scope=0",
        "ulimit -c unlimited",
        "nvidia-smi topo -p2p r",
        "docker run --shm-size=1g --ulimit memlock=-1",
    ):
        on_the_page(example, said)


def test_every_command_of_the_page_parses() -> None:
    """All that stands in the column of ours is a command line of ours."""
    from unhang.cli.main import COMMANDS

    found = re.findall(r"`(?:\w+=\S* )*unhang (\w+)", PAGE.read_text())
    assert len(found) > 20
    assert set(found) <= {entry.name for entry in COMMANDS}


def test_every_example_of_the_page_is_run() -> None:
    """Each is compared by some test with what the command really printed."""
    assert len(examples()) > 50
    assert not_run(Path(__file__).parent) == []
