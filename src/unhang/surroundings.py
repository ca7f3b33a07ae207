"""What surrounds a job on one node: environment, limits, versions. Secrets stay outside.

Of the environment only variables that matter to a distributed job are taken, by prefix, and of
these none whose name or value looks like a secret: a case is made to be shown to others.
"""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Iterable, Mapping

from unhang.telltale import REMOVED, is_secret_name, without_secrets

__all__ = ["describe_node", "harmless_environment"]

_PREFIXES = (
    "CUDA_", "GLOO_", "GOMP_", "HIP_", "HSA_", "JOB_ID", "KMP_", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "LOCAL_", "LSB_", "MASTER_", "MKL_", "MPI", "NCCL_", "NUMEXPR_", "NVIDIA_", "OMP_",
    "OMPI_", "PBS_", "PET_", "PMI", "PYTHON", "RANK", "RAY_", "RCCL_", "ROCR_", "ROLE_", "SLURM_",
    "TORCH", "TP_SOCKET_", "TRITON_", "UCC_", "UCX_", "UNHANG_", "VIRTUAL_ENV", "WORLD_SIZE",
    "GROUP_", "FI_", "ACCELERATE_", "DS_", "FSDP_", "HOSTNAME",
)  # fmt: skip

_LIMITS = ("NOFILE", "MEMLOCK", "NPROC", "STACK", "CORE", "AS", "FSIZE")


def harmless_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that matter to a distributed job, by name, secrets replaced by a word."""
    return {
        name: REMOVED if is_secret_name(name) or without_secrets(value) != value else value
        for name, value in sorted(env.items())
        if name.startswith(_PREFIXES)
    }


def describe_node(env: Mapping[str, str], torch: str = "") -> dict[str, object]:
    """Host, kernel, limits, versions and environment of this node as plain values."""
    return {
        "host": platform.node(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load": list(os.getloadavg()),
        "python": platform.python_version(),
        "torch": torch,
        "limits": dict(_limits(_LIMITS)),
        "environment": harmless_environment(env),
    }


def _limits(names: Iterable[str]) -> Iterable[tuple[str, list[int | str]]]:
    for name in names:
        number = getattr(resource, f"RLIMIT_{name}", None)
        if number is not None:
            soft, hard = resource.getrlimit(number)
            yield (
                name.lower(),
                ["unlimited" if x == resource.RLIM_INFINITY else x for x in (soft, hard)],
            )
