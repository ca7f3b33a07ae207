"""Two ranks on a backend that torch does not record: every way in which programs communicate.

Arguments: "fake" (one process that plays rank 0 of 2), "custom" (Gloo registered under another
name, with torch's recorders off) or "python" (a process group whose class is Python).
Prints, for each part, the names of the calls that our recorder saw on rank 0.
"""

import json
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from python_groups import OnGloo
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.distributed_c10d import _coalescing_manager

import unhang
from unhang.record.dumps.torchfr import load_plain

warnings.simplefilter("ignore")
KIND = sys.argv[1]


class PythonGroup(OnGloo):
    """A group as torchft's: a Python class around a backend, with Python Works."""

    def allreduce(self, tensors, opts=None):
        return PythonWork(self.inside.allreduce(tensors, opts or dist.AllreduceOptions()))

    def broadcast(self, tensors, opts):
        return PythonWork(self.inside.broadcast(tensors, opts))

    def barrier(self, opts=None):
        return PythonWork(self.inside.barrier(opts or dist.BarrierOptions()))

    def send(self, tensors, dst, tag):
        return PythonWork(self.inside.send(tensors, dst, tag))

    def recv(self, tensors, src, tag):
        return PythonWork(self.inside.recv(tensors, src, tag))


class PythonWork(dist.Work):
    """A Work whose wait is Python."""

    def __init__(self, work):
        super().__init__()
        self.work = work

    def wait(self, timeout=None):
        return self.work.wait()

    def get_future(self):
        return self.work.get_future()


if KIND == "fake":
    dist.init_process_group("fake", rank=0, world_size=2)
else:
    maker = PythonGroup if KIND == "python" else dist.ProcessGroupGloo
    dist.Backend.register_backend(KIND, maker, devices=["cpu"])
    dist.init_process_group(KIND)

rank = dist.get_rank()
peer = 1 - rank
world = dist.group.WORLD
data = torch.ones(4)
seen = 0
record = {}


def dump():
    return load_plain(unhang.dump_bytes("gloo" if KIND == "custom" else KIND))


def part(name, work):
    """Do something, then note which calls it made."""
    global seen
    try:
        work()
    except Exception as error:
        record[name] = f"{type(error).__name__}: {error}"[:300]
    else:
        entries = dump()["entries"]
        record[name] = [entry["profiling_name"].partition(":")[2] for entry in entries[seen:]]
    seen = len(dump()["entries"])


def pieces():
    return [torch.empty(4), torch.empty(4)]


def two_coalesced():
    with _coalescing_manager():
        dist.all_reduce(data)
        dist.all_reduce(torch.ones(2))


def coalesced_by_the_backend():
    with _coalescing_manager(device=torch.device("cpu")):
        dist.reduce(data, 0)
        dist.reduce(data, 1)


def exchange():
    operations = [dist.P2POp(dist.isend, data, peer), dist.P2POp(dist.irecv, torch.empty(4), peer)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()


def there_and_back():
    for turn in (0, 1):
        if rank == turn:
            dist.send(data, peer)
        else:
            dist.recv(data, peer)


def data_parallel():
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))
    model(torch.ones(2, 4)).sum().backward()


def fully_sharded():
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model(torch.ones(2, 4)).sum().backward()


def distributed_tensor():
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2,))
    tensor = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
    assert tensor.redistribute(mesh, [Replicate()]).to_local().sum() == 16


def pipeline():
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    stage = PipelineStage(nn.Linear(4, 4), rank, 2, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, 2, loss_fn=nn.functional.mse_loss)
    if rank == 0:
        schedule.step(torch.ones(4, 4))
    else:
        schedule.step(target=torch.ones(4, 4), losses=[])


def objects():
    dist.broadcast_object_list([{"step": 1}], 0)


def subgroup():
    group = dist.new_group([0, 1], group_desc="tp")
    dist.all_reduce(data, group=group)


part("all_reduce", lambda: dist.all_reduce(data))
part("async", lambda: dist.all_reduce(data, async_op=True).wait())
part("broadcast", lambda: dist.broadcast(data, 0))
part("barrier", dist.barrier)
part("objects", objects)
if KIND != "fake":
    part("there_and_back", there_and_back)
part("exchange", exchange)
part("functional", lambda: funcol.all_reduce(data, "sum", world).sum())
if KIND != "fake":  # torch's FakeWork has no result: DDP fails on it without us too
    part("ddp", data_parallel)
if KIND != "python":
    part("reduce", lambda: dist.reduce(data, 0))
    part("all_gather", lambda: dist.all_gather(pieces(), data))
    part("all_gather_into_tensor", lambda: dist.all_gather_into_tensor(torch.empty(8), data))
    part("reduce_scatter", lambda: dist.reduce_scatter(torch.empty(4), [data, data]))
    part("reduce_scatter_tensor", lambda: dist.reduce_scatter_tensor(torch.empty(2), data))
    part("gather", lambda: dist.gather(data, None if rank else pieces(), 0))
    part("scatter", lambda: dist.scatter(data, None if rank else pieces(), 0))
    part("all_to_all", lambda: dist.all_to_all(pieces(), [data, data]))
    part("all_to_all_single", lambda: dist.all_to_all_single(torch.empty(4), data))
    part("coalesced", two_coalesced)
    part("functional_gather", lambda: funcol.all_gather_tensor(data, 0, world).sum())
    part("functional_all_to_all", lambda: funcol.all_to_all_single(data, None, None, world).sum())
    part("fsdp2", fully_sharded)
    part("dtensor", distributed_tensor)
    part("subgroup", subgroup)
if KIND == "fake":
    part("coalesced_by_the_backend", coalesced_by_the_backend)
if KIND == "custom":
    part("pipeline", pipeline)
last = dump()
print("seen", json.dumps(record))
print("dump", json.dumps(last))
dist.destroy_process_group()
print("done")
