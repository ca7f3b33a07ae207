"""Threads that save while the main one trains: objects on the CPU's backend, sums on the GPU's."""

import threading
import time

import torch
import torch.distributed as dist


def save(step: int) -> None:
    """Agree on what is saved; ranks come to it at other moments of the training."""
    time.sleep(0.02 * dist.get_rank())
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, (dist.get_rank(), step))
    assert found == [(rank, step) for rank in range(dist.get_world_size())]


def main() -> None:
    """Two saves, each in a thread of its own."""
    dist.init_process_group("cpu:gloo,cuda:nccl")
    for step in range(2):
        saving = threading.Thread(target=save, args=(step,))
        saving.start()
        for _ in range(5):
            total = torch.ones(2, device="cuda")
            dist.all_reduce(total)
            assert total[0].item() == dist.get_world_size()
        saving.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
