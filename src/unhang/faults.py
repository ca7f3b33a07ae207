"""Versions of libraries with a known fault that hangs jobs, each with the thread that proves it.

A row says what was shown and no more: where a thread tells of one version, the next is in no row.
To add one, name the first version that has the fault, the first that has not, and the thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

DRIVER: Final = "NVIDIA driver"
_PACKAGES: Final = {
    "nvidia-nccl-cu12": "NCCL",
    "nvidia-nccl-cu13": "NCCL",
    "nvidia driver": DRIVER,
}


class KnownFault(NamedTuple):
    """A range of versions with a known fault.

    Attributes:
        library: As people call it.
        since: The first version that has it.
        before: The first version that has not.
        what: What happens, after "has a known fault: ".
        helps: What to do where it cannot be updated, or "".
        thread: Where it was shown, as repository#number.
        stands: Ranks stand in calls that all of them have made, so that a verdict names none.
        machine: The only architecture that has it; "" for all.
    """

    library: str
    since: tuple[int, ...]
    before: tuple[int, ...]
    what: str
    helps: str
    thread: str
    stands: bool = True
    machine: str = ""


FAULTS: Final = (
    KnownFault("NCCL", (2, 17, 1), (2, 17, 2),
        "ncclCommAbort waits for the other ranks, so that ends hang", "",
        "pytorch/pytorch#119215", stands=False),
    KnownFault("NCCL", (2, 18), (2, 29, 3),
        "its proxy loses slots on aarch64, until a rank waits for ever", "",
        "NVIDIA/nccl#2353", machine="aarch64"),
    KnownFault("NCCL", (2, 25, 1), (2, 26, 2),
        "ncclCommAbort hangs after a failure", "",
        "pytorch/pytorch#149153", stands=False),
    KnownFault("NCCL", (2, 28, 9), (2, 28, 10),
        "collectives of CUDA graphs stand still across nodes (2.30.4 has it not)",
        "run without graphs (--enforce-eager)",
        "vllm-project/vllm#52504"),
    KnownFault("NCCL", (2, 29, 2), (2, 29, 3),
        "a regression hangs collectives", "",
        "pytorch/pytorch#174338"),
    KnownFault("torch", (2, 3), (2, 6),
        "no dump on time-out by default", "set TORCH_NCCL_DUMP_ON_TIMEOUT=1",
        "pytorch/pytorch#142260", stands=False),
    KnownFault("torch", (2, 7), (2, 7, 1),
        "init_process_group with device_id hangs calls at random",
        "set TORCH_NCCL_USE_COMM_NONBLOCKING=0",
        "pytorch/pytorch#153960"),
    KnownFault("torch", (2, 9), (2, 12),
        "the dump pipe reads the old name of the buffer's size alone",
        "set TORCH_NCCL_TRACE_BUFFER_SIZE too",
        "pytorch/pytorch#152563", stands=False),
    KnownFault(DRIVER, (545,), (546,),
        "copies between GPUs without NVLink hang", "set NCCL_P2P_DISABLE=1",
        "vllm-project/vllm#1801"),
    KnownFault(DRIVER, (560,), (561,),
        "copies between GPUs without NVLink may hang (570 has it not)", "set NCCL_P2P_DISABLE=1",
        "dmlc/xgboost#11242"),
)  # fmt: skip


def library_of(package: str) -> str:
    """What people call the library of a package."""
    return _PACKAGES.get(package, package)


def faults_of(library: str, version: str, machine: str = "") -> Iterator[KnownFault]:
    """The known faults of a version.

    Args:
        library: As `library_of` has it.
        version: "2.28.9+cuda12.9", "2.13.0a0+git1234", "570.133.20".
        machine: "x86_64", "aarch64"; "" where it is not known: faults of one are left out.
    """
    numbers = _numbers(version)
    for fault in FAULTS:
        here = fault.library == library and fault.machine in ("", machine)
        if here and numbers and fault.since <= numbers < fault.before:
            yield fault


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(?:\.\d+)*", version.split("+", 1)[0])
    return tuple(int(part) for part in found[0].split(".")) if found else ()
