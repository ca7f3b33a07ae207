"""What kind of process a stack belongs to, from its outer frames alone.

Launchers and data-loader workers inherit RANK and its like, and saved files often hold them next to
the ranks. Their outermost Python frames give them away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from unhang.model import UNKNOWN_RANK, ProcessSample
from unhang.stacks.ownership import same_file

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


_ENGINE = re.compile(
    r"\b(?:VLLM::(?:EngineCore|APIServer)|sglang::(?:detokenizer|tokenizer)|sglang::http)"
)
"""Processes that give workers their orders, by the titles that they give themselves."""
_CORE = re.compile(r"\bVLLM::EngineCore")
_WORKER = re.compile(r"\b(?:VLLM::Worker|sglang::scheduler)(?P<where>(?:_[A-Z]{2,3}\d{1,5})+)\b")
_PLACE = re.compile(r"_([A-Z]{2,3})(\d{1,5})")


def ranks_of_titles(titles: Mapping[int, str]) -> dict[int, int]:
    """Ranks by process, where the titles of all workers tell them, each another one.

    A worker of one tensor-parallel group ("VLLM::Worker_TP2") has its number as its rank. With a
    second coordinate next to it nothing tells how they are counted.
    """
    found = {pid: _rank_in(title) for pid, title in titles.items() if is_worker(title)}
    whole = UNKNOWN_RANK not in found.values() and len(set(found.values())) == len(found)
    return found if whole else {}


def is_worker(title: str) -> bool:
    """Whether a process says that it is a worker of a serving engine."""
    return _WORKER.search(title) is not None


def is_engine(title: str) -> bool:
    """Whether a process says that it is the engine, or another part that serves it."""
    return _ENGINE.search(title) is not None


def is_core(title: str) -> bool:
    """Whether a process says that it is the part of an engine that orders each step."""
    return _CORE.search(title) is not None


def place_in_title(title: str) -> str:
    """Where a worker says it is: "PP2 TP1" of "sglang::scheduler_PP2_TP1"; "" where it does not."""
    found = _WORKER.search(title)
    return found["where"].strip("_").replace("_", " ") if found else ""


def _rank_in(title: str) -> int:
    found = _WORKER.search(title)
    places = dict(_PLACE.findall(found["where"])) if found else {}
    numbers = {key: int(value) for key, value in places.items() if key != "EP"}
    return next(iter(numbers.values())) if len(numbers) == 1 else UNKNOWN_RANK


def role_of_stack(sample: ProcessSample) -> str:
    """Return "launcher", "engine", "data-loader" or "helper"; "unknown" where nothing shows one."""
    if is_engine(sample.command):
        return "engine"
    for thread in sample.threads:
        if not thread.is_main:
            continue
        for frame in reversed(thread.frames):
            for function, file, role in _SIGNS:
                if frame.function == function and same_file(frame.file, file):
                    return role
    return "unknown"
