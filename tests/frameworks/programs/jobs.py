"""Training loops of real frameworks on Gloo, with trouble in one rank: `jobs.py WHICH FAULT`.

Started by torchrun, by a shell (RANK, WORLD_SIZE and so on in the environment), or alone, where
the framework starts its ranks itself.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from trouble import STEPS, strike

SIZE = 3


def ddp(fault: str) -> None:
    """DistributedDataParallel."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        strike(fault, rank, step)
        model(torch.randn(8, 16)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


def fsdp2(fault: str) -> None:
    """Fully sharded, by layers."""
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(3)))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    for step in range(STEPS):
        strike(fault, rank, step)
        model(torch.randn(4, 16)).sum().backward()
    dist.destroy_process_group()


def dtensor(fault: str) -> None:
    """Tensor parallel: functional collectives."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
    rank = dist.get_rank()
    model = torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.ReLU(), torch.nn.Linear(24, 12))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    for step in range(STEPS):
        strike(fault, rank, step)
        model(torch.randn(4, 12)).sum().backward()
    dist.destroy_process_group()


def pipelining(fault: str) -> None:
    """A pipeline schedule."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    stage = PipelineStage(torch.nn.Linear(8, 8), rank, size, torch.device("cpu"))
    schedule = Schedule1F1B(stage, 4, loss_fn=lambda output, _: output.sum())
    for step in range(STEPS):
        strike(fault, rank, step)
        if rank == 0:
            schedule.step(torch.randn(8, 8))
        elif rank == size - 1:
            schedule.step(target=torch.zeros(8, 8))
        else:
            schedule.step()
    dist.destroy_process_group()


def dcp(fault: str) -> None:
    """A distributed checkpoint every few steps; the trouble comes while it is made."""
    from torch.distributed import checkpoint

    dist.init_process_group("gloo")
    rank = dist.get_rank()

    class Progress:
        """Asked for its state by every rank."""

        step = 0

        def state_dict(self) -> dict[str, object]:
            strike(fault, rank, self.step)
            return {"step": torch.tensor(self.step)}

        def load_state_dict(self, state: dict[str, object]) -> None:
            """Never."""

    model, progress = torch.nn.Linear(16, 16), Progress()
    for step in range(0, STEPS, 4):
        progress.step = step
        dist.all_reduce(torch.ones(4))
        state = {"model": model.state_dict(), "progress": progress}
        checkpoint.save(state, checkpoint_id=f"ckpt-{step}")
    dist.destroy_process_group()


def accelerate(fault: str) -> None:
    """Accelerate's own loop."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    rows = torch.randn(STEPS * 4 * accelerator.num_processes, 16)
    data = torch.utils.data.DataLoader(rows, batch_size=4)
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    for step, batch in enumerate(data):
        strike(fault, accelerator.process_index, step)
        accelerator.backward(model(batch).sum())
        optimizer.step()
        optimizer.zero_grad()
    accelerator.wait_for_everyone()
    accelerator.end_training()


def trainer(fault: str) -> None:
    """The Trainer of transformers, with the trouble in a callback."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from unhang.integrations.trainer import ForTrainer

    class Small(torch.nn.Module):
        """A regression."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(16, 1)

        def forward(self, values: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            output = self.linear(values).squeeze(-1)
            return {"loss": ((output - labels) ** 2).mean(), "logits": output}

    class Trouble(TrainerCallback):
        """Between two steps."""

        def on_step_begin(self, args, state, control, **_):
            strike(fault, args.process_index, state.global_step)

    told = TrainingArguments(
        output_dir="trainer",
        max_steps=STEPS,
        per_device_train_batch_size=2,
        use_cpu=True,
        report_to=[],
        logging_steps=5,
        save_strategy="no",
        disable_tqdm=True,
    )
    rows = [{"values": torch.randn(16), "labels": torch.randn(())} for _ in range(400)]
    Trainer(Small(), told, train_dataset=rows, callbacks=[Trouble(), ForTrainer()]).train()


def lightning(fault: str) -> None:
    """Lightning, which starts its ranks itself."""
    import lightning

    from unhang.integrations.lightning import ForLightning

    class Module(lightning.LightningModule):
        """A layer."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(16, 4)

        def training_step(self, batch, index):
            strike(fault, self.global_rank, index)
            return self.layer(batch).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    loop = lightning.Trainer(
        accelerator="cpu",
        devices=SIZE,
        strategy="ddp",
        max_epochs=1,
        logger=False,
        callbacks=[ForLightning()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loop.fit(Module(), torch.utils.data.DataLoader(torch.randn(STEPS * 4 * SIZE, 16), batch_size=4))


def ray_loop(config: dict[str, str]) -> None:
    """A worker of Ray Train."""
    import ray.train
    import ray.train.torch

    sys.path.insert(0, config["here"])
    import trouble

    rank = ray.train.get_context().get_world_rank()
    model = ray.train.torch.prepare_model(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(trouble.STEPS):
        trouble.strike(config["fault"], rank, step)
        model(torch.randn(8, 16)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def ray(fault: str) -> None:
    """Ray Train."""
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    from unhang.integrations.ray import watched

    here = str(Path(__file__).parent)
    ray.init(num_cpus=4, include_dashboard=False)
    TorchTrainer(
        watched(ray_loop),
        train_loop_config={"fault": fault, "here": here},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=SIZE),
        run_config=RunConfig(storage_path=str(Path.cwd())),
    ).fit()


def spawned(rank: int, fault: str) -> None:
    """A rank that torch.multiprocessing started."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(SIZE)}
    ddp(fault)


def spawn(fault: str) -> None:
    """torch.multiprocessing.spawn."""
    import torch.multiprocessing as mp

    os.environ["MASTER_ADDR"] = "127.0.0.1"
    mp.spawn(spawned, (fault,), SIZE)


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
