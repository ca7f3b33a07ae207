"""Real distributed jobs on Gloo that go wrong on purpose: `hanging_jobs.py FAULT`.

Started by torchrun, by mpirun, or alone: then it forks its ranks. A line that ends in "# here" is
where the culprit of the fault above it stands.
"""

import atexit
import contextlib
import ctypes
import datetime as dt
import fcntl
import importlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

FOREVER = 100_000
ODD = 1
SIZE = 3


class Images(Dataset):
    """A data set whose storage stops answering one rank."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.rank == ODD and index == 40:
            self.fetch()
        return torch.randn(16)

    def fetch(self) -> None:
        """Wait for storage that does not answer."""
        time.sleep(FOREVER)  # loader: here


def loader(rank: int) -> None:
    """DistributedDataParallel, and the data loader of one rank stops."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in DataLoader(Images(rank), batch_size=8):
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def skip(rank: int) -> None:
    """One rank does not reduce the norm in one step, and later saves while others wait."""
    for step in range(10):
        dist.all_reduce(torch.ones(4))
        if not (rank == ODD and step == 4):
            dist.all_reduce(torch.ones(4))
    if rank == ODD:
        time.sleep(FOREVER)  # skip: here
    dist.all_reduce(torch.ones(4))


def crossed(rank: int) -> None:
    """Two ranks enter two groups in different order."""
    first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
    dist.all_reduce(torch.ones(1))
    if rank == 0:
        dist.all_reduce(torch.ones(2), group=first)  # crossed: here
        dist.all_reduce(torch.ones(2), group=second)
    else:
        dist.all_reduce(torch.ones(2), group=second)  # crossed: here
        dist.all_reduce(torch.ones(2), group=first)


def ring(rank: int) -> None:
    """A ring in which everybody receives first."""
    size = dist.get_world_size()
    dist.all_reduce(torch.ones(1))
    received = torch.empty(4)
    dist.recv(received, src=(rank - 1) % size)  # ring: here
    dist.send(received, dst=(rank + 1) % size)


def tags(rank: int) -> None:
    """Exchanges under the round as tag, which one rank counts twice once."""
    at, got = 0, torch.empty(4)
    for step in range(20):
        at += 2 if rank == ODD and step == 14 else 1
        sent = dist.isend(torch.ones(4), 1 - rank, tag=at)  # tags: here
        received = dist.irecv(got, 1 - rank, tag=at)
        received.wait()
        sent.wait()


def roots(rank: int) -> None:
    """Rank 1 takes itself for the one whose settings all others are to have."""
    for _ in range(30):
        dist.all_reduce(torch.ones(4))
        time.sleep(0.1)
    settings = torch.ones(4)
    dist.broadcast(settings, src=int(rank == 1))  # roots: here
    dist.broadcast(settings, src=0)


def groups(rank: int) -> None:
    """Rank 1 makes the groups in another order."""
    for _ in range(30):
        dist.all_reduce(torch.ones(4))
        time.sleep(0.1)
    pairs = [[0, 1], [1, 2]]
    for pair in reversed(pairs) if rank == 1 else pairs:
        dist.new_group(pair)  # groups: here


def ahead(rank: int) -> None:
    """Rank 0 posts its receive before the collective call, and waits for it after; one sleeps."""
    got = torch.empty(4)
    for step in range(20):
        posted = dist.irecv(got, 2) if rank == 0 else None
        if rank == 2:
            dist.send(torch.ones(4), 0)
        if rank == ODD and step == 14:
            time.sleep(FOREVER)  # ahead: here
        dist.all_reduce(torch.ones(4))
        if posted is not None:
            posted.wait()


def forgets(rank: int) -> None:
    """Nobody waits for what it sends to the next rank; one sleeps after an exchange."""
    size, got, sent = dist.get_world_size(), torch.empty(4), []
    for step in range(20):
        sent = [*sent[-1:], dist.isend(torch.ones(4), (rank + 1) % size)]
        dist.recv(got, (rank - 1) % size)
        if rank == ODD and step == 14:
            time.sleep(FOREVER)  # forgets: here
        dist.all_reduce(torch.ones(4))


def raises(rank: int) -> None:
    """One rank raises between two steps."""
    for step in range(100):
        dist.all_reduce(torch.ones(4))
        if rank == ODD and step == 20:
            raise ValueError("loss is not finite")  # raises: here


def killed(rank: int) -> None:
    """One rank is killed, as by the out-of-memory killer."""
    for step in range(100):
        dist.all_reduce(torch.ones(4))  # killed: here
        if rank == ODD and step == 20:
            os.kill(os.getpid(), signal.SIGKILL)


def stopped(rank: int) -> None:
    """One rank is stopped by a signal."""
    for step in range(100):
        dist.all_reduce(torch.ones(4))
        if rank == ODD and step == 20:
            os.kill(os.getpid(), signal.SIGSTOP)  # stopped: here


def gil(rank: int) -> None:
    """One rank is in a C function that keeps the GIL."""
    for step in range(100):
        dist.all_reduce(torch.ones(4))
        if rank == ODD and step == 20:
            ctypes.PyDLL(None).sleep(FOREVER)  # gil: here


def fsdp(rank: int) -> None:
    """FSDP2, and one rank evaluates on its own for ever."""
    from torch.distributed.fsdp import fully_shard

    model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(3)))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    for step in range(100):
        model(torch.randn(4, 16)).sum().backward()
        if rank == ODD and step == 5:
            time.sleep(FOREVER)  # fsdp: here


class Stage(torch.nn.Module):
    """A pipeline stage that stalls in its tenth microbatch if it is the odd one."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.rank = rank
        self.calls = 0

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """One microbatch."""
        self.calls += 1
        if self.rank == ODD and self.calls == 10:
            time.sleep(FOREVER)  # pipeline: here
        return self.linear(batch)


def pipeline(rank: int) -> None:
    """A pipeline schedule in which a stage stalls."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    size = dist.get_world_size()
    stage = PipelineStage(Stage(rank), rank, size, torch.device("cpu"))
    schedule = Schedule1F1B(stage, 4, loss_fn=lambda output, _: output.sum())
    for _ in range(10):
        if rank == 0:
            schedule.step(torch.randn(8, 8))
        elif rank == size - 1:
            schedule.step(target=torch.zeros(8, 8))
        else:
            schedule.step()


def healthy(rank: int) -> None:
    """A slow first step, then longer and longer checkpoints while the others wait."""
    time.sleep(1.5)
    for pause in (1.2, 2.4, 4.4):
        for _ in range(10):
            dist.all_reduce(torch.ones(4))
        if rank == 0:
            time.sleep(pause)
        dist.barrier()


def leaves(rank: int) -> None:
    """The job is ended as soon as somebody collects its evidence."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # Ranks end with their launcher.
    dist.all_reduce(torch.ones(4))
    if rank == ODD:
        while not Path("unhang-cases").is_dir():
            time.sleep(0.001)
        os.kill(os.getppid(), signal.SIGTERM)
    dist.all_reduce(torch.ones(4))
    time.sleep(FOREVER)


def evaluates(rank: int) -> None:
    """Rank 0 evaluates while the others wait, until it is told to go on, or to stand still."""
    for _ in range(10):
        dist.all_reduce(torch.ones(4))
    if rank == 0:
        model = torch.nn.Linear(64, 64)
        while not Path("go-on").exists():  # evaluates: here
            model(torch.randn(64, 64))  # evaluates: here
            if Path("stand-still").exists():  # evaluates: here
                time.sleep(FOREVER)
    dist.barrier()


def polls(rank: int) -> None:
    """Rank 0 looks for a file now and then while the others wait."""
    for _ in range(10):
        dist.all_reduce(torch.ones(4))
    while rank == 0 and not Path("go-on").exists():
        time.sleep(0.2)  # polls: here
    dist.barrier()


def backs_off(rank: int) -> None:
    """Rank 0 pauses as programs do that can be told to stop meanwhile."""
    for _ in range(10):
        dist.all_reduce(torch.ones(4))
    if rank == 0:
        threading.Event().wait(25)  # backs_off: here
    dist.barrier()


def shares_a_cache(rank: int) -> None:
    """All but one rank wait for the lock of a file, which another process holds; then all go on."""
    for _ in range(40):
        dist.all_reduce(torch.ones(4))
    if rank == 0:
        _hold_lock()
    dist.all_reduce(torch.ones(4))
    if rank:
        with Path("cache.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # shares_a_cache: here
    dist.barrier()


def _hold_lock() -> None:
    """Let a process of its own hold it until it is told to let go."""
    file = Path("cache.lock").open("w")  # noqa: SIM115 - the other process closes it
    fcntl.flock(file, fcntl.LOCK_EX)
    if os.fork() == 0:
        while not Path("go-on").exists():
            time.sleep(0.2)
        os._exit(0)
    file.close()


def serves(rank: int) -> None:
    """Rank 0 hands on what comes in, and then nothing does for a while; nothing is wrong."""
    requests: queue.Queue[int] = queue.Queue()
    if rank == 0:
        threading.Thread(target=_ask, args=(requests,), daemon=True).start()
    box = [0]
    while box[0] >= 0:
        box = [requests.get() if rank == 0 else None]  # serves: here
        dist.broadcast_object_list(box, src=0)
        dist.all_reduce(torch.ones(4))


def _ask(requests: queue.Queue[int]) -> None:
    """Twelve requests, a long pause, and an end."""
    for number in range(12):
        time.sleep(0.3)
        requests.put(number)
    while not Path("go-on").exists():
        time.sleep(1.0)
    requests.put(-1)


def rarely(rank: int) -> None:
    """Each tenth step ends in a barrier, which one of two ranks leaves out at last."""
    for step in range(60):
        dist.all_reduce(torch.ones(4))  # rarely: here
        if step % 10 == 9 and not (rank == ODD and step == 39):
            dist.barrier()


def sleeps(rank: int) -> None:
    """One rank sleeps for two minutes while the others wait."""
    for step in range(10):
        dist.all_reduce(torch.ones(4))
        if rank == ODD and step == 5:
            time.sleep(FOREVER)  # sleeps: here


def steps(rank: int) -> None:
    """All go on, until rank 0 is told to end."""
    over = torch.zeros(1)
    while not over.item():
        over = torch.tensor([float(rank == 0 and Path("go-on").exists())])
        dist.all_reduce(over)
        time.sleep(0.1)


def saves(rank: int) -> None:
    """Rank 0 writes checkpoints while the others wait, until it is told to go on."""
    for _ in range(10):
        dist.all_reduce(torch.ones(4))
    if rank == 0:
        state = {"weight": torch.randn(1000, 1000)}
        while not Path("go-on").exists():  # saves: here
            torch.save(state, "checkpoint.pt")  # saves: here
    dist.barrier()


def trickles(rank: int) -> None:
    """Rank 0 writes to storage that takes 23 KB/s, until it is told to go on."""
    for _ in range(10):
        dist.all_reduce(torch.ones(4))
    if rank == 0:
        with Path("weights").open("wb") as file:
            while not Path("go-on").exists():  # trickles: here
                file.write(bytes(1 << 14))  # trickles: here
                file.flush()  # trickles: here
                os.fsync(file.fileno())  # trickles: here
                time.sleep(0.7)  # trickles: here
    dist.barrier()


def receives(rank: int) -> None:
    """Rank 0 receives data while the others wait, until it is told to go on."""
    for _ in range(10):
        dist.all_reduce(torch.ones(4))
    if rank == 0:
        server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=_send_slowly, args=(server,)).start()
        data = socket.create_connection(server.getsockname())
        while data.recv(1 << 16):  # receives: here
            pass
    dist.barrier()


def retries(rank: int) -> None:
    """Rank 0 asks a busy service again and again, and says so, until it is told to go on."""
    for _ in range(10):
        dist.all_reduce(torch.ones(4))
    while rank == 0 and not Path("go-on").exists():
        print("503, trying again", flush=True)
        time.sleep(0.5)  # retries: here
    dist.barrier()


LISTS = """
import pathlib, time
while not pathlib.Path("go-on").exists():
    time.sleep(0.4)
    print("shard", flush=True)
"""


def lists(rank: int) -> None:
    """Rank 0 reads what another program lists, line by line, until that is told to end."""
    for _ in range(10):
        dist.all_reduce(torch.ones(4))
    if rank == 0:
        with subprocess.Popen([sys.executable, "-c", LISTS], stdout=subprocess.PIPE) as listing:
            for _ in listing.stdout:  # lists: here
                pass
    dist.barrier()


def late(rank: int) -> None:
    """Rank 0 waits for a file, which comes just when the alarm is looked into: as by chance."""
    for _ in range(10):
        dist.all_reduce(torch.ones(4))
    while rank == 0 and len([*Path("unhang-cases").glob("*/dumps/gloo/rank_?")]) < SIZE:
        time.sleep(0.02)  # late: here
    for _ in range(40):
        dist.all_reduce(torch.ones(4))
        time.sleep(0.1)


def rests(rank: int) -> None:
    """A service told rank 0 when to come again; the others wait, until a signal wakes it sooner."""
    for _ in range(10):
        dist.all_reduce(torch.ones(4))
    if rank == 0:
        signal.signal(signal.SIGUSR1, _wake)
        Path("asleep").write_text(str(os.getpid()))
        with contextlib.suppress(InterruptedError):
            time.sleep(250)  # rests: here
    dist.barrier()


def _wake(*_: object) -> None:
    raise InterruptedError


def _send_slowly(server: socket.socket) -> None:
    """A few megabytes a second, which cost next to no CPU time."""
    connection, _ = server.accept()
    with connection:
        while not Path("go-on").exists():
            connection.sendall(bytes(1 << 18))
            time.sleep(0.1)


def runs_out(rank: int) -> None:
    """The data of one rank end before those of the others."""
    for step in range(100):
        dist.all_reduce(torch.ones(4))
        if rank == ODD and step == 20:
            sys.exit()  # runs_out: here


def drops_out(rank: int) -> None:
    """One rank ends its process as if all were well, and without cleaning up."""
    for step in range(100):
        dist.all_reduce(torch.ones(4))
        if rank == ODD and step == 20:
            os._exit(0)  # drops_out: here


def outwaits(rank: int) -> None:
    """One rank stands still for longer than its peers' own time-out."""
    for step in range(100):
        dist.all_reduce(torch.ones(4))
        if rank == ODD and step == 20:
            time.sleep(FOREVER)  # outwaits: here


def gives_up(rank: int) -> None:
    """One rank stands still; its peers' own time-out comes after somebody has noticed."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 4))
    for step in range(100):
        dist.all_reduce(torch.ones(4))
        if rank == ODD and step == 20:
            time.sleep(FOREVER)  # gives_up: here
        model(torch.randn(8, 16)).sum().backward()


def uneven(rank: int) -> None:
    """One rank reduces a tensor of another size, for which Gloo ends whoever receives it."""
    for step in range(30):
        size = 160 if rank == ODD and step == 20 else 256
        dist.all_reduce(torch.ones(size))  # uneven: here


def read_first() -> None:
    """Read data that never come, before any group is made."""
    time.sleep(FOREVER)  # comes_late: here


def comes_late(rank: int) -> None:
    """One rank does not reach init_process_group (see `run`)."""


def ends(rank: int) -> None:
    """Ranks end one after another, each only when the one before it has gone."""
    dist.all_reduce(torch.ones(4))
    if rank:
        while not Path(f"ended-{rank - 1}").exists():
            time.sleep(0.01)
    dist.destroy_process_group()
    Path(f"ended-{rank}").touch()
    sys.exit()


def lingers(rank: int) -> None:
    """All go well to the end, at which one rank waits for a thread that is no more."""
    for _ in range(10):
        dist.all_reduce(torch.ones(4))
    if rank == ODD:
        atexit.register(_flush, threading.Event())


def _flush(sent: threading.Event) -> None:
    """Wait until everything is sent."""
    sent.wait()  # lingers: here


def asks(rank: int) -> None:
    """Ranks hand on words by a store, and one forgets its own."""
    store = dist.distributed_c10d._get_default_store()
    for step in range(10):
        if not (step == 5 and rank == 2):
            store.set(f"{step}/{rank}", "done")
        if rank == ODD:
            store.wait([f"{step}/{each}" for each in range(dist.get_world_size())])  # asks: here
        dist.all_reduce(torch.ones(4))


def run(fault: str) -> None:
    """One rank, from its environment."""
    if fault == "comes_late" and int(os.environ["RANK"]) == ODD:
        read_first()
    if fault == "unready" and int(os.environ["RANK"]) == ODD:
        raise KeyError(fault)  # unready: here
    patience = {"outwaits": 5, "gives_up": 30}.get(fault, 600)
    dist.init_process_group("gloo", timeout=dt.timedelta(seconds=patience))
    globals()[fault](dist.get_rank())
    dist.barrier()
    dist.destroy_process_group()


IMPORTS = {"fsdp": "torch.distributed.fsdp", "pipeline": "torch.distributed.pipelining"}


def fork_ranks(size: int, fault: str) -> None:
    """Be a launcher: ranks by fork, which spares importing torch again."""
    if fault in IMPORTS:  # Seconds on a busy machine, which would look like a pause of the job.
        importlib.import_module(IMPORTS[fault])
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[3]}
    children = []
    for rank in range(size):
        pid = os.fork()
        if pid == 0:
            os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank)}
            run(fault)
            sys.exit()
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    sys.exit(max(map(abs, codes)))


if "OMPI_COMM_WORLD_RANK" in os.environ:
    words = {"RANK": "RANK", "WORLD_SIZE": "SIZE", "LOCAL_RANK": "LOCAL_RANK"}
    os.environ |= {name: os.environ[f"OMPI_COMM_WORLD_{word}"] for name, word in words.items()}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[3]}
if "RANK" in os.environ:
    run(sys.argv[1])
else:
    fork_ranks(int(sys.argv[2]), sys.argv[1])
