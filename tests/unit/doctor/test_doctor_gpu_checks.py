"""The doctor's judgement over what GPUs told: every check both ways."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from check_results import bad

from unhang.doctor.agents.gpu import acs_enabled
from unhang.doctor.asking.nodes import Node, NodeAnswer
from unhang.doctor.checks.gpu import check_gpus, check_kernel_log


def gpu(**changes: object) -> dict[str, Any]:
    """A GPU with nothing wrong, as the management library describes it."""
    return {"index": 0, "name": "GPU", "memory_used": 0, "memory_total": 1 << 36, "pids": [],
            "ecc": 0, "remapped": [0, 0, 0, 0], "throttle": 0, "temperature": 40,
            "nvlinks": [True] * 4, "fabric": None, "pcie_width": 16, "pcie_width_max": 16,
            "mig": False, "persistence": 1, "slowed": [], **changes}  # fmt: skip


def answer(name: str = "a", **changes: object) -> NodeAnswer:
    """A node's GPUs."""
    data = {"vendor": "NVIDIA", "gpus": [gpu()], "without_p2p": [], "acs": [], "all_pids": True,
            "notes": [], "error": "", "looked": True, "lost": [], **changes}  # fmt: skip
    return NodeAnswer(Node(name, name), data)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"memory_used": 8 << 30}, [("UH841", "fail")]),
        ({"memory_used": 8 << 30, "pids": [7]}, [("UH841", "warn")]),
        ({"ecc": 3}, [("UH842", "fail")]),
        ({"remapped": [0, 0, 0, 1]}, [("UH842", "fail")]),
        ({"throttle": 0x40}, [("UH844", "fail")]),
        ({"throttle": 0x1}, []),
        ({"slowed": ["prochot"]}, [("UH844", "fail")]),
        ({"slowed": ["unknown"]}, [("UH844", "warn")]),
        ({"nvlinks": [True, False]}, [("UH845", "fail")]),
        ({"fabric": 1}, [("UH846", "fail")]),
        ({"fabric": 3}, []),
        ({"pcie_width": 8}, [("UH847", "warn")]),
        ({"mig": True}, [("UH851", "warn")]),
        ({"persistence": 0}, [("UH852", "warn")]),
        ({"ecc": None, "throttle": None, "pcie_width": None, "persistence": None}, []),
    ],
)
def test_gpu_checks(changes: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    """Each fault of one GPU; what the GPU does not support is no fault."""
    assert bad(check_gpus([answer(gpus=[gpu(**changes)])])) == expected


def test_nobody_is_blamed_where_not_all_processes_are_seen() -> None:
    """In a container the memory may belong to a process outside."""
    left = [gpu(memory_used=8 << 30)]
    assert bad(check_gpus([answer(gpus=left, all_pids=False)])) == [("UH841", "warn")]


def test_between_gpus_and_between_nodes() -> None:
    """Missing P2P, access control, and a node with fewer GPUs than the others."""
    two = answer("a", gpus=[gpu(), gpu(index=1)])
    found = check_gpus([two, answer("b", acs=["00:01.0"], without_p2p=[[0, 1]])])
    assert bad(found) == [("UH848", "warn"), ("UH849", "warn"), ("UH840", "fail")]


def test_no_gpu_is_no_fault() -> None:
    """A node without a driver is skipped, and says why."""
    result = check_gpus([answer(gpus=[], error="no driver")])
    assert [(r.level, "no driver" in r.seen) for r in result] == [("skip", True)]


def test_a_node_that_could_not_look_has_not_fewer_gpus() -> None:
    """Without a library nothing is known of its GPUs: that is no fault of the node."""
    found = check_gpus([answer("a"), answer("b", gpus=[], error="no library", looked=False)])
    assert [(r.code, r.level) for r in found] == [("UH840", "ok"), ("UH840", "skip")]
    found = check_gpus([answer("a"), answer("b", gpus=[], error="no driver")])
    assert bad(found) == [("UH840", "fail")]


def test_a_gpu_that_does_not_answer_fails() -> None:
    """The driver counts it, and cannot ask it: it fell off the bus."""
    (seen, _) = check_gpus([answer(lost=[{"index": 1, "error": "GPU is lost"}])])
    assert (seen.code, seen.level, seen.subjects[0].id) == ("UH840", "fail", "a gpu 1")


def test_what_no_gpu_tells_is_said() -> None:
    """A check of what nobody told saw nothing."""
    (seen,) = check_gpus([answer(gpus=[gpu(ecc=None), gpu(index=1, ecc=None)])])
    assert (seen.level, seen.seen) == ("ok", "a: 2 GPUs answered; not told: ecc.")


def test_xids() -> None:
    """Hardware numbers fail, others warn, repeated lines count once."""
    lines = ["NVRM: Xid (PCI:0000:3b:00): 79, gone"] * 2 + ["NVRM: Xid (PCI:0000:3b:00): 31, x"]
    assert bad(check_kernel_log({"a": {"dmesg": lines}})) == [("UH843", "fail"), ("UH843", "warn")]


def test_access_control_is_read_from_the_chain_of_capabilities() -> None:
    """The ACS capability is found behind another one; its control bits decide."""
    config = bytearray(4096)
    struct.pack_into("<I", config, 0x100, 0x140 << 20 | 1 << 16 | 0x0001)
    struct.pack_into("<I", config, 0x140, 1 << 16 | 0x000D)
    assert not acs_enabled(bytes(config))
    struct.pack_into("<H", config, 0x146, 0x1D)
    assert acs_enabled(bytes(config))
    assert not acs_enabled(bytes(64))
