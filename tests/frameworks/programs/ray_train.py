"""Four workers of Ray Train on Gloo: `ray_train.py FOLDER stuck|healthy`.

The folder is one that all nodes see, as Ray wants it: workers note there that they came to the
step from which on one is stuck, or all go on until there is a file `end`.
"""

import sys
import time
from pathlib import Path

from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

ODD, STEP = 3, 20


def read_shard() -> None:
    """Wait for storage that does not answer."""
    time.sleep(100_000)  # stuck: here


def train_loop(config: dict[str, str]) -> None:
    """As docs/recipes.md has it: armed in its first lines."""
    import unhang

    unhang.arm()
    import torch
    import torch.distributed as dist

    folder, step, over = Path(config["folder"]), 0, torch.zeros(1)
    while not over.item():
        step += 1
        if step == STEP:
            (folder / f"ready-{dist.get_rank()}").touch()
            if config["fault"] == "stuck" and dist.get_rank() == ODD:
                read_shard()
        over = torch.tensor([float((folder / "end").exists())])
        dist.all_reduce(over)
        time.sleep(0.1)


TorchTrainer(
    train_loop,
    train_loop_config={"folder": sys.argv[1], "fault": sys.argv[2]},
    scaling_config=ScalingConfig(num_workers=4),
    torch_config=TorchConfig(backend="gloo"),
    run_config=RunConfig(storage_path=sys.argv[1]),
).fit()
