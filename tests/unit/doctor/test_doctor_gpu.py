"""The GPU agent against a stand-in of NVIDIA's management library.

The stand-in answers as the library's documentation (nvidia-ml-py 12 and 13) says: two GPUs, one of
which supports nothing but what every GPU does. No answer was recorded on a real GPU; the test in
tests/integration with the marker `gpu` asks a real one where there is one.
"""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from unhang.doctor.agents.gpu import examine
from unhang.doctor.asking.nodes import Node, NodeAnswer
from unhang.doctor.checks.gpu import check_gpus
from unhang.doctor.checks.shapes import gpus_misfit


class NVMLError(Exception):
    """What the library raises for whatever a GPU does not support."""


class Fabric(ctypes.Structure):
    """The library's structure, as far as it is read."""

    _fields_ = (("status", ctypes.c_uint), ("state", ctypes.c_ubyte))


def refuse(*_: object) -> Any:  # noqa: ANN401 - as the library's functions
    """Not supported."""
    raise NVMLError("Not Supported")


def library(**answers: Any) -> SimpleNamespace:  # noqa: ANN401 - functions of the library
    """The module pynvml; whatever is not given is not supported."""

    def fabric(gpu: int, info: Any) -> None:  # noqa: ANN401 - a ctypes reference
        if gpu:
            refuse()
        info._obj.state = 1

    known = {
        "NVMLError": NVMLError,
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
        "NVML_VOLATILE_ECC": 0,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(used=9 << 30, total=80 << 30),
        "nvmlDeviceGetName": lambda _: b"NVIDIA GPU",
        "nvmlDeviceGetTotalEccErrors": lambda gpu, kind, counter: 0 if gpu else 7 * kind + counter,
        "nvmlDeviceGetRemappedRows": lambda gpu: refuse() if gpu else (0, 1, 0, 1),
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: refuse() if gpu else 0x40,
        "nvmlDeviceGetNvLinkState": lambda gpu, link: refuse() if gpu or link > 1 else 1 - link,
        "nvmlDeviceGetP2PStatus": lambda _a, _b, _index: 3,
        "c_nvmlGpuFabricInfo_t": Fabric,
        "nvmlDeviceGetGpuFabricInfo": fabric,
        **answers,
    }
    return SimpleNamespace(**known)


def test_what_the_library_says_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the library's functions to results: faults of GPU 0, nothing unsupported of GPU 1."""
    monkeypatch.setitem(sys.modules, "pynvml", library())  # type: ignore[arg-type]  # a stand-in
    facts = examine({})
    assert facts["error"] == ""
    facts["gpus"] = [{**g, "remapped": list(g["remapped"]) if g["remapped"] else None}
                     for g in facts["gpus"]]  # fmt: skip  # as it comes out of JSON
    assert gpus_misfit(facts) == ""
    results = check_gpus([NodeAnswer(Node("a"), facts)])
    found = {(r.code, r.subjects[0].id) for r in results if r.level != "ok"}
    assert found == {
        ("UH841", "a gpu 0"), ("UH841", "a gpu 1"), ("UH842", "a gpu 0"), ("UH844", "a gpu 0"),
        ("UH845", "a gpu 0"), ("UH846", "a gpu 0"), ("UH848", "a"),
    }  # fmt: skip


def test_no_driver_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the library's own words."""

    def absent() -> None:
        raise NVMLError("Driver Not DumpFile")

    monkeypatch.setitem(sys.modules, "pynvml", library(nvmlInit=absent))  # type: ignore[arg-type]  # a stand-in
    facts = examine({})
    assert facts["error"] == "Driver Not DumpFile; neither amd-smi nor rocm-smi is installed"
    assert facts["looked"]


def test_a_lost_gpu_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted and does not answer; the other one is described."""

    def handle(index: int) -> int:
        if index == 0:
            raise NVMLError("GPU is lost")
        return index

    stand_in = library(nvmlDeviceGetHandleByIndex=handle)
    monkeypatch.setitem(sys.modules, "pynvml", stand_in)  # type: ignore[arg-type]  # a stand-in
    facts = examine({})
    assert facts["lost"] == [{"index": 0, "error": "GPU is lost"}]
    assert [gpu["index"] for gpu in facts["gpus"]] == [1]
    assert gpus_misfit(facts) == ""


def test_answers_of_another_shape_are_not_judged() -> None:
    """What a node sends is from outside."""
    good = {"gpus": [], "without_p2p": [[0, 1]], "acs": [], "error": "", "vendor": "NVIDIA",
            "all_pids": True, "notes": [], "looked": True, "lost": []}  # fmt: skip
    assert gpus_misfit(good) == ""
    assert gpus_misfit({**good, "without_p2p": [[0]]})
    assert gpus_misfit({**good, "gpus": [{"index": "x"}]})
    assert gpus_misfit({})
