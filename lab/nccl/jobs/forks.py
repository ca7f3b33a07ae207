"""Runs jobs in forks of one process, which imports torch once, and keeps what their ranks dump.

`forks.py REQUEST.json`: each job of the request gets a directory; in it, a folder for each way in
which its ranks were asked (`asked`, `pipe`, `timeout`) and a log of each rank.
"""

import glob
import json
import os
import shutil
import sys
import threading
import time
import traceback
from contextlib import suppress

import devices  # noqa: F401 - registers its jobs
import hosts  # noqa: F401 - the same
import mistakes  # noqa: F401 - the same
import programs  # noqa: F401 - the same
import torch
import torch.distributed as dist
from common import JOINED, main

_STILL = 0.6
"""Of their time-out ranks stand still before they are asked: no verdict takes that for a step."""


def warm():
    """What a first dump with stacks imports, in each process that has not."""
    import importlib

    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 4):
        return  # importing it asks for devices, after which a fork has none
    for name in ("torch._inductor.codecache", "torch.distributed.device_mesh"):
        try:
            importlib.import_module(name)
        except Exception:  # noqa: BLE001 - older versions lack some
            traceback.print_exc()


def settings(folder, request, port):
    prefix = f"{folder}/nccl_trace_rank_"
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(request["ranks"]),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "FAKE_MEETING": f"{os.getpid()}.{port}",
        "LAB_TIMEOUT_S": str(request["timeout_s"]),
        "LAB_STAY_S": "900",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TORCH_FR_DUMP_TEMP_FILE": prefix,
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": prefix,
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{folder}/pipe_",
        "TORCH_NCCL_ENABLE_TIMING": "1" if request["timing"] else "0",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3",
        "OMP_NUM_THREADS": "1",
        **request["environment"],
    }


def answer(folder, rank):
    """In a thread of each rank: dump when the file `ask` appears, as a program of its own would.

    Twice: whole, and calls only that have not ended.
    """
    tell_whether_it_moves(folder, rank)
    dumps = {"active": recorded(onlyActive=True), "asked": recorded()}
    for how, data in dumps.items():
        with open(f"{folder}/.{rank}", "wb") as file:
            file.write(data)
        os.rename(f"{folder}/.{rank}", f"{folder}/{how}/nccl_trace_rank_{rank}")


def tell_whether_it_moves(folder, rank):
    """Until the ranks are asked: a file says that this one has joined, another that it is still."""
    before, since, still = None, time.time(), f"{folder}/still{rank}"
    while not os.path.exists(f"{folder}/ask"):
        now = stands_at()
        if now != before:
            before, since = now, time.time()
            with suppress(FileNotFoundError):
                os.remove(still)
        elif JOINED.is_set():
            open(f"{folder}/joined{rank}", "w").close()
            if time.time() - since > _STILL * float(os.environ["LAB_TIMEOUT_S"]):
                open(still, "w").close()
        time.sleep(0.05)


def stands_at():
    """Where the main thread is, to the instruction."""
    frame, found = sys._current_frames().get(threading.main_thread().ident), []
    while frame:
        found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return found


def settle(folder, request):
    """Until ranks stand still or, of a job that goes on, for some seconds after they joined.

    From their start alone it would be told on a busy machine before anything has gone wrong.
    """
    wait_until(lambda: len(glob.glob(f"{folder}/joined*")) >= request["answers"], 60)
    wait_until(lambda: len(glob.glob(f"{folder}/still*")) >= request["answers"], request["ask_s"])


def wait_until(condition, seconds):
    end = time.time() + seconds
    while time.time() < end and not condition():
        time.sleep(0.1)


def recorded(**which):
    """What the recorder of the default group's backend holds: torch 2.15's own, by its name."""
    if torch.__version__ >= "2.15" and os.environ.get("TORCH_DIST_USE_NCCL2") != "0":
        return torch._C._distributed_c10d._dump_fr_trace(backend="nccl2", **which)
    return torch._C._distributed_c10d._dump_nccl_trace(**which)


def rank_main(name, folder, rank):
    os.environ["RANK"] = str(rank)
    log = os.open(f"{folder}/log{rank}", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    threading.Thread(target=answer, args=(folder, rank), daemon=True).start()
    try:
        main(name)
    except BaseException:  # noqa: BLE001 - it goes into the log
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


def written(folder):
    return [f for f in glob.glob(f"{folder}/nccl_trace_rank_*") if os.path.getsize(f)]


def wait_for(folder, count, seconds):
    """Until so many dumps are there and do not grow any more, or it has taken too long."""
    end, before = time.time() + seconds, {}
    while time.time() < end:
        now = {f: os.path.getsize(f) for f in written(folder)}
        if len(now) >= count and now == before:
            return
        before = now
        time.sleep(0.5)


def keep(folder, how):
    """Put the dumps that torch has written into a folder of their own."""
    os.makedirs(f"{folder}/{how}", exist_ok=True)
    for file in written(folder):
        shutil.move(file, f"{folder}/{how}")


def ask_pipes(folder):
    """Write to every pipe; how many there are (before torch 2.4, none)."""
    pipes = glob.glob(f"{folder}/pipe_*.pipe")
    for path in pipes:
        try:
            pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            os.write(pipe, b"1\n")
            os.close(pipe)
        except OSError as error:
            print(f"{path}: {error.strerror}", flush=True)
    return len(pipes)


def run(request, port):
    """One job: start it, ask it in the middle, wait for its time-out, end it."""
    folder, ranks = request["folder"], request["ranks"]
    shutil.rmtree(folder, ignore_errors=True)
    for how in ("active", "asked"):
        os.makedirs(f"{folder}/{how}")
    os.environ.update(settings(folder, request, port))
    pids = []
    for rank in range(ranks):
        pid = os.fork()
        if not pid:
            rank_main(request["job"], folder, rank)
        pids.append(pid)
    store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    settle(folder, request)
    open(f"{folder}/ask", "w").close()
    wait_for(f"{folder}/asked", request["answers"], 30)
    if pipes := ask_pipes(folder):
        wait_for(folder, min(pipes, request["answers"]), 15)
        keep(folder, "pipe")
    if request["hangs"]:
        wait_for(folder, request["answers"], request["timeout_s"] + 12)
        keep(folder, "timeout")
    for pid in pids:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    del store
    shutil.rmtree(f"/dev/shm/fakegpu.{os.environ['FAKE_MEETING']}", ignore_errors=True)  # noqa: S108 - where they meet


def run_all(requests, port, at_once):
    running = {}
    for number, request in enumerate(requests):
        while len(running) >= at_once:
            pid, _ = os.wait()
            print(running.pop(pid), "done", flush=True)
        pid = os.fork()
        if not pid:
            try:
                run(request, port + number)
            except BaseException:  # noqa: BLE001 - the others go on
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(0)
        running[pid] = request["job"]
    while running:
        pid, _ = os.wait()
        print(running.pop(pid), "done", flush=True)


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        asked = json.load(file)
    warm()
    run_all(asked["jobs"], asked["port"], asked["at_once"])
