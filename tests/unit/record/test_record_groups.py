"""Who records the calls of a group, on each torch: which recorder is asked, by which name.

The stand-ins have the shape of the real modules, as seen in 2.13.0, 2.14.1 and 2.15.0: what
`_world` keeps, what a backend calls itself, and which functions take `backend`.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from unhang.record.calls import full, groups
from unhang.record.calls.ring import Ring
from unhang.record.contact.beat import Beat
from unhang.record.contact.beatlayout import GroupBeat
from unhang.record.dumps import torchfr
from unhang.record.process import ArmedProcess
from unhang.record.settings import Settings


class Group:
    """A process group: its backends by device, as torch was told and as they call themselves."""

    def __init__(self, told: str, serving: dict[str, str]) -> None:
        self.told, self.serving = told, serving
        self.group_name, self.group_desc = "0", "default_pg"

    def rank(self) -> int:
        """Of this process."""
        return 0

    def _get_backend(self, device: str) -> Any:  # noqa: ANN401 - a stand-in
        if device not in self.serving:
            raise RuntimeError("No backend type associated with device type")
        return SimpleNamespace(name=lambda: self.serving[device])


@dataclass
class Torch:
    """One version's surface, with what its recorders hold: numbers of calls by backend."""

    version: str
    by_name: bool
    hooks: bool
    held: dict[str, int] = field(default_factory=dict)

    def modules(self, group: Group, *, hooked: bool) -> dict[str, Any]:
        """The modules that the recorder looks into."""
        world = SimpleNamespace(
            pg_map={group: (group.told, None)},
            pg_names={group: "0"},
            pg_group_ranks={group: {0: 0, 1: 1}},
            pg_backend_config={group: group.told},
        )
        if self.hooks:
            world.pg_flight_recorder_hooks = {group: object()} if hooked else {}
        return {
            "torch": SimpleNamespace(__version__=self.version, device=lambda name: name),
            "torch.distributed.distributed_c10d": SimpleNamespace(_world=world),
            "torch._C._distributed_c10d": SimpleNamespace(
                _dump_fr_trace=self._named(self._pickle) if self.by_name else self._pickle,
                _dump_fr_trace_json=self._named(self._json) if self.by_name else self._json,
                _dump_nccl_trace=lambda *_: self._dump("nccl"),
                _dump_nccl_trace_json=lambda *_: self._status("nccl"),
            ),
        }

    def _named(self, function: Callable[..., bytes]) -> Callable[..., bytes]:
        return lambda *values, backend="gloo": function(*values, held_by=backend)

    def _pickle(self, _a: bool, _b: bool, _c: bool, held_by: str = "gloo") -> bytes:  # noqa: FBT001 - torch's
        return self._dump(held_by)

    def _json(self, _a: bool, _b: bool, held_by: str = "gloo") -> bytes:  # noqa: FBT001 - torch's
        return self._status(held_by)

    def _dump(self, backend: str) -> bytes:
        entries = [{"profiling_name": f"{backend}:all_reduce"}] * self.held.get(backend, 0)
        return pickle.dumps({"entries": entries}, protocol=2)

    def _status(self, backend: str) -> bytes:
        last = {"last_enqueued_collective": str(self.held.get(backend, 0) - 1)}
        return json.dumps({"pg_status": {"0": last} if backend in self.held else {}}).encode()


def old(**held: int) -> Torch:
    """Torch 2.13 and before: NCCL records itself, and no hook is attached."""
    return Torch("2.13.0+cu130", by_name=False, hooks=False, held=held)


def middle(**held: int) -> Torch:
    """Torch 2.14: "nccl" may be the new class, and nobody attaches a hook."""
    return Torch("2.14.1+cu130", by_name=False, hooks=False, held=held)


def new(**held: int) -> Torch:
    """Torch 2.15: a hook for every group whose backends do not all record themselves."""
    return Torch("2.15.0+cu132", by_name=True, hooks=True, held=held)


NCCL = {"cuda": "nccl"}
NCCL2 = {"cuda": "nccl2"}
CASES = {
    "2.13": (old(nccl=3), "cuda:nccl", NCCL, False, {"nccl"}, set()),
    "2.13-mpi": (old(), "cpu:mpi,cuda:mpi", {"cpu": "mpi"}, False, set(), set()),
    "2.14": (middle(nccl=3), "cuda:nccl", NCCL, False, {"nccl"}, set()),
    "2.14-nccl2": (middle(), "cuda:nccl", NCCL2, False, set(), set()),
    "2.15": (new(nccl2=3), "cuda:nccl", NCCL2, True, {"nccl2"}, {"nccl2"}),
    "2.15-legacy": (new(nccl=3), "cuda:nccl-legacy", NCCL, False, {"nccl"}, set()),
    "2.15-set": (new(nccl=3), "cuda:nccl", NCCL, False, {"nccl"}, set()),
    "2.15-mixed": (
        new(gloo=2, nccl2=3), "cpu:gloo,cuda:nccl", {"cpu": "gloo", **NCCL2}, True,
        {"gloo", "nccl2"}, {"nccl2"},
    ),
    "2.15-plugin": (new(mine=1), "cuda:mine", {"cuda": "mine"}, True, {"mine"}, {"mine"}),
    "2.15-python": (new(), "cuda:mine", {}, False, set(), set()),
}  # fmt: skip


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 - a row
    """One torch with one group."""
    torch, told, serving, hooked, recorded, by_hook = CASES[request.param]
    group = Group(told, serving)
    for name, module in torch.modules(group, hooked=hooked).items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delenv("TORCH_FR_BUFFER_SIZE", raising=False)
    monkeypatch.delenv("TORCH_NCCL_TRACE_BUFFER_SIZE", raising=False)
    return SimpleNamespace(group=group, torch=torch, recorded=recorded, by_hook=by_hook)


def process() -> ArmedProcess:
    """A process that knows its groups."""
    state = ArmedProcess(Settings(), 1, Beat(None, pid=1, start_ticks=1), Ring(10))
    groups.note_groups(state)
    return state


def test_either_torch_records_or_we_do(case: Any) -> None:  # noqa: ANN401 - a row
    """Never both, and never neither: a group that torch does not record is ours."""
    assert groups.recorded_by_torch(case.group) == case.recorded
    assert full.wanted(case.group, "auto") is not bool(case.recorded)
    assert groups.channel_of(case.group).bare is not bool(case.recorded)
    groups.forget_channels()


def test_the_recorder_that_records_is_asked(case: Any) -> None:  # noqa: ANN401 - a row
    """By the name that the backend gives itself."""
    state = process()
    assert set(state.hooked) == case.by_hook
    found = {}
    for source in torchfr.recorders(hooked=state.hooked):
        dump = source.dump(collectives=True, stacks=False, only_active=False)
        if dump["entries"]:
            found[source.backend] = len(dump["entries"])
    assert found == case.torch.held


def test_counters_of_a_hook_reach_the_heartbeat(case: Any) -> None:  # noqa: ANN401 - a row
    """With the name of their group; a backend that the table lacks has them too."""
    state = process()
    beats: list[GroupBeat] = []
    for source in torchfr.recorders(hooked=state.hooked):
        beats += groups.named(torchfr.counters(source), state)
    assert {(beat.recorder, beat.name, beat.last_enqueued) for beat in beats} == {
        (backend, "0", number - 1) for backend, number in case.torch.held.items()
    }
    state.beat.tick(beats, 0, 0)


def test_a_ring_that_is_off_records_nothing(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401 - a row
    """Torch attaches no hook then."""
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "0")
    sys.modules["torch.distributed.distributed_c10d"]._world.pg_flight_recorder_hooks = {}
    assert groups.recorded_by_torch(case.group) == frozenset()
    assert full.wanted(case.group, "auto")
