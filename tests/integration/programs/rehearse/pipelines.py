"""Every pipelining schedule of torch for a step, and its own plan of it: pipelines.py FOLDER."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class

NAMES = (
    "GPipe", "1F1B", "LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble",
    "DualPipeV",
)  # fmt: skip
PARTS, DIM = 4, 4


def stages_of(name, single, group):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if single:
        mine, count = (rank,), ranks
    elif name in ("ZBVZeroBubble", "DualPipeV"):
        mine, count = (rank, 2 * ranks - 1 - rank), 2 * ranks
    else:
        mine, count = (rank, rank + ranks), 2 * ranks
    device = torch.device("cuda", rank)
    given, made = (torch.zeros(1, DIM, requires_grad=grad) for grad in (False, True))
    for number in mine:
        layer, first = nn.Linear(DIM, DIM).to(device), given if number == 0 else made
        yield PipelineStage(
            layer, number, count, device, input_args=first, output_args=made, group=group
        )


def step(name):
    group = dist.new_group(group_desc=name)
    kind = get_schedule_class(name)
    single = issubclass(kind, PipelineScheduleSingle)
    stages = list(stages_of(name, single, group))
    loss = nn.functional.mse_loss
    schedule = kind(stages[0] if single else stages, PARTS, loss_fn=loss)
    data = torch.ones(PARTS, DIM, device="cuda")
    last = any(stage.is_last for stage in stages)
    given = [data] if any(stage.is_first for stage in stages) else []
    schedule.step(*given, target=data if last else None, losses=[] if last else None)
    if dist.get_rank() == 0 and not single:
        schedule._dump_csv(f"{sys.argv[1]}/{name}.csv", "compute_comms")


dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
for each in NAMES:
    step(each)
dist.barrier()
