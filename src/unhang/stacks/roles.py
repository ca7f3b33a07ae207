"""What kind of process a stack belongs to, from its outer frames alone.

Launchers and data-loader workers inherit RANK and its like, and saved files often hold them beside
the ranks. Their outermost Python frames give them away.
"""

from __future__ import annotations

from unhang.model import ProcessSample
from unhang.stacks.ownership import same_file

__all__ = ["role_of_stack"]

_SIGNS: tuple[tuple[str, str, str], ...] = (
    # function, end of the file's path, role
    ("_worker_loop", "torch/utils/data/_utils/worker.py", "data-loader"),
    ("main", "multiprocessing/resource_tracker.py", "helper"),
    ("main", "multiprocessing/forkserver.py", "helper"),
    ("main", "torch/_inductor/compile_worker/__main__.py", "helper"),
    ("launch_agent", "torch/distributed/launcher/api.py", "launcher"),
    ("main", "deepspeed/launcher/runner.py", "launcher"),
    ("main", "deepspeed/launcher/launch.py", "launcher"),
    ("launch_command", "accelerate/commands/launch.py", "launcher"),
    ("main", "torch/distributed/debug/_frontend.py", "helper"),
)


def role_of_stack(sample: ProcessSample) -> str:
    """Return "launcher", "data-loader" or "helper"; "unknown" where the stack shows none."""
    for thread in sample.threads:
        if not thread.is_main:
            continue
        for frame in reversed(thread.frames):
            for function, file, role in _SIGNS:
                if frame.function == function and same_file(frame.file, file):
                    return role
    return "unknown"
