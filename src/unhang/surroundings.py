"""What surrounds a job on one node: environment, limits, versions. Secrets stay outside.

Of the environment only variables that matter to a distributed job are taken, by prefix, and of
these none whose name or value looks like a secret: a case is made to be shown to others.
"""

from __future__ import annotations

import os
import platform
import re
import resource
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from unhang.regular import open_regular
from unhang.telltale import REMOVED, is_secret_name, without_secrets

_PREFIXES = (
    "CUDA_", "GLOO_", "GOMP_", "HIP_", "HSA_", "JOB_ID", "KMP_", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "LOCAL_", "LSB_", "MASTER_", "MKL_", "MPI", "NCCL_", "NUMEXPR_", "NVIDIA_", "OMP_",
    "OMPI_", "PBS_", "PET_", "PMI", "PYTHON", "RANK", "RAY_", "RCCL_", "ROCR_", "ROLE_", "SLURM_",
    "TORCH", "TP_SOCKET_", "TRITON_", "UCC_", "UCX_", "UNHANG_", "VIRTUAL_ENV", "WORLD_SIZE",
    "GROUP_", "FI_", "ACCELERATE_", "DS_", "FSDP_", "HOSTNAME",
)  # fmt: skip

_COMMIT: Final = re.compile(r"[0-9a-f]{40,64}")
_SHORT: Final = 10
"""Digits of a commit: as many as tell one in large repositories."""
_PAIR: Final = 2
_MOST_BYTES: Final = 4 << 20
_LIMITS = ("NOFILE", "MEMLOCK", "NPROC", "STACK", "CORE", "AS", "FSIZE")


def harmless_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that matter to a distributed job, by name, secrets replaced by a word."""
    return {
        name: REMOVED if is_secret_name(name) or without_secrets(value) != value else value
        for name, value in sorted(env.items())
        if name.startswith(_PREFIXES)
    }


def describe_node(env: Mapping[str, str], torch: str = "", folder: str = "") -> dict[str, object]:
    """Host, kernel, limits, versions and environment of this node as plain values.

    Args:
        env: Of the job.
        torch: Its version.
        folder: Where the job was started: of its repository the revision is taken.
    """
    return {
        "host": platform.node(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load": list(os.getloadavg()),
        "python": platform.python_version(),
        "torch": torch,
        "revision": revision_of(folder) if folder else "",
        "limits": dict(_limits(_LIMITS)),
        "environment": harmless_environment(env),
    }


def revision_of(folder: str) -> str:
    """Commit and branch of the repository that a folder lies in; "" where it lies in none.

    The files of the repository tell: no program is run for it, and what is not committed does not
    show.
    """
    for place in (folder, *map(str, Path(folder).absolute().parents)):
        git = Path(place, ".git")
        if git.is_dir():
            return _head_of(git, git)
        if git.is_file():  # a worktree: its folder is named there, and the refs are above that
            own = Path(place, _line(git).removeprefix("gitdir: "))
            return _head_of(own, Path(own, _line(own / "commondir") or "."))
    return ""


def _head_of(git: Path, shared: Path) -> str:
    head = _line(git / "HEAD")
    if not head.startswith("ref: "):
        return head[:_SHORT] if _COMMIT.fullmatch(head) else ""
    name = head.removeprefix("ref: ")
    packed = (line.split(" ") for line in _text(shared / "packed-refs").splitlines())
    known = {words[1]: words[0] for words in packed if len(words) == _PAIR}
    commit = _line(shared / name) or known.get(name, "")
    branch = without_secrets(name.removeprefix("refs/heads/"))
    return f"{commit[:_SHORT]} ({branch})" if _COMMIT.fullmatch(commit) else ""


def _line(path: Path) -> str:
    return _text(path).partition("\n")[0].strip()


def _text(path: Path) -> str:
    try:
        with open_regular(path) as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _limits(names: Iterable[str]) -> Iterable[tuple[str, list[int | str]]]:
    for name in names:
        number = getattr(resource, f"RLIMIT_{name}", None)
        if number is not None:
            soft, hard = resource.getrlimit(number)
            yield (
                name.lower(),
                ["unlimited" if x == resource.RLIM_INFINITY else x for x in (soft, hard)],
            )
