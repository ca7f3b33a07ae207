"""Process groups as torch's Python side knows them: names, members, backends, time-outs.

Torch's C++ recorder loses most of this on Gloo (its `pg_config` is empty or wrong). Here it is
read from `torch.distributed`'s own maps, and kept after `destroy_process_group` has emptied them.
"""

from __future__ import annotations

import os
import sys
import weakref
from dataclasses import replace
from typing import Any, Final

from unhang.record.calls.ring import Channel, Foreign
from unhang.record.contact.beatlayout import GroupBeat
from unhang.record.dumps.torchfr import FUNCTIONS
from unhang.record.process import ArmedProcess, GroupFact

_OWN: Final = frozenset(name for name, _, _ in FUNCTIONS)
"""Backends that record themselves."""
_HOOKS: Final = "pg_flight_recorder_hooks"
"""Where torch keeps its recording hooks, by group."""

CHANNELS: Final[dict[int, Channel]] = {}
"""By the identity of the group; `channel_of` reads it."""


def torch_records() -> bool:
    """Whether torch's recorders are on in this process."""
    size = os.environ.get("TORCH_FR_BUFFER_SIZE", os.environ.get("TORCH_NCCL_TRACE_BUFFER_SIZE"))
    return size != "0"


def recorded_by_torch(group: Foreign) -> frozenset[str]:
    """Those of a group's backends whose calls this torch records, P2P on Gloo excepted.

    Gloo, NCCL's older class and XCCL record themselves. From torch 2.14 on a hook can record for
    any other backend, and it is torch that decides, group by group, whether there is one.
    """
    if not torch_records():
        return frozenset()
    c10d = sys.modules.get("torch._C._distributed_c10d")
    own = {name for name, function, _ in FUNCTIONS if hasattr(c10d, function)}
    return frozenset(own.intersection(backends_of(group).values())) | hooked_by_torch(group)


def hooked_by_torch(group: Foreign) -> frozenset[str]:
    """Those of a group's backends for which a hook of torch's records, each in its own recorder."""
    if group not in _world(_HOOKS):
        return frozenset()
    return frozenset(backends_of(group).values()) - _OWN


def channel_of(group: Foreign) -> Channel:
    """The recorder's view of a group, made at its first call.

    Keyed by identity with a weak reference next to it: no group is kept alive, and a new group at
    an old address is noticed.
    """
    channel = CHANNELS.get(id(group))
    if channel is None or channel.ref() is not group:
        channel = _new_channel(group)
        CHANNELS[id(group)] = channel
    return channel


def channels() -> list[Channel]:
    """All channels, in the order in which they were first used."""
    return sorted(CHANNELS.values(), key=lambda channel: channel.pg_id)


def forget_channels() -> None:
    """Drop all channels (after fork)."""
    CHANNELS.clear()


_next_id = 0


def _new_channel(group: Foreign) -> Channel:
    global _next_id  # noqa: PLW0603 - a counter of this process
    by_device = backends_of(group)
    names = set(by_device.values())
    channel = Channel(
        ref=weakref.ref(group),
        name=_name(group),
        description=_text(group, "group_desc"),
        backend=names.pop() if len(names) == 1 else "",
        by_device=by_device,
        rank=int(group.rank()),
        timeout_ms=timeout_of(group),
        pg_id=_next_id,
        bare=not recorded_by_torch(group),
    )
    _next_id += 1
    return channel


def _name(group: Foreign) -> str:
    """The group's name, as itself or else as torch.distributed has it."""
    return _text(group, "group_name") or str(_world("pg_names").get(group, ""))


def _text(group: Foreign, attribute: str) -> str:
    """A name of the group; the getters raise on groups that have none."""
    try:
        return str(getattr(group, attribute))
    except (RuntimeError, AttributeError):
        return ""


def backends_of(group: Foreign) -> dict[str, str]:
    """Backend name by device type: what torch was given, or else what the group itself says.

    From torch 2.14 on "nccl" may be another class than the one that records itself.
    """
    config = _world("pg_backend_config").get(group, "")
    found = {}
    for part in str(config).split(","):
        device, colon, backend = part.partition(":")
        if colon and device and backend:
            found[device] = backend
    if found:
        return {device: _serving(group, device, told) for device, told in found.items()}
    try:
        return {"cpu": str(group.name()).lower()}
    except (RuntimeError, AttributeError):
        return {}


def _serving(group: Foreign, device: str, told: str) -> str:
    """The name that the backend gives itself, where that decides who records; else the one told.

    It is the key of a hook's recorder, and tells the class that records itself from others. A
    group whose class is Python makes calls of its own, whatever backend it holds inside: only a
    hook sees them.
    """
    try:
        own = str(group._get_backend(sys.modules["torch"].device(device)).name())
    except (KeyError, RuntimeError, AttributeError, NotImplementedError):
        return told
    decides = group in _world(_HOOKS) or (_is_plain(group) and not _OWN.isdisjoint((told, own)))
    return own if own and decides else told


def _is_plain(group: Foreign) -> bool:
    inner = getattr(group, "_unhang_inner", group)
    c10d = sys.modules.get("torch._C._distributed_c10d")
    return type(inner) is getattr(c10d, "ProcessGroup", type(inner))


def timeout_of(group: Foreign) -> int:
    """The group's time-out in ms, -1 where its backend does not tell."""
    try:
        for device in group._device_types:
            options = getattr(group._get_backend(device), "options", None)
            timeout = getattr(options, "_timeout", None)
            if timeout is not None:
                return int(timeout.total_seconds() * 1000)
    except (RuntimeError, AttributeError, TypeError):
        return -1
    return -1


def _world(attribute: str) -> dict[Any, Any]:
    """A copy of one of torch.distributed's maps, empty where there is none."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    mapping = getattr(getattr(c10d, "_world", None), attribute, None)
    return dict(mapping) if mapping else {}


def note_groups(state: ArmedProcess) -> None:
    """Add the groups that exist now to those that the recorder has seen."""
    ranks = _world("pg_group_ranks")
    for group, (backend, _) in _world("pg_map").items():
        order = sorted(ranks.get(group, {}).items(), key=lambda item: item[1])
        fact = GroupFact(
            name=_name(group),
            description=_text(group, "group_desc"),
            ranks=tuple(int(rank) for rank, _ in order),
            backend=_backend_name(group, backend),
            timeout_ms=timeout_of(group),
            hooked=hooked_by_torch(group),
        )
        if fact.ranks:
            state.groups[fact.name, fact.description, fact.ranks] = fact


def named(beats: list[GroupBeat], state: ArmedProcess) -> list[GroupBeat]:
    """Counters of one of torch's recorders with the names of their groups.

    Torch numbers the groups of a backend in the order in which a process makes them. Where a
    number lies beyond the groups that we have seen, some were made otherwise, and none is named.
    """
    recorder = beats[0].recorder if beats else ""
    facts = [fact for fact in state.groups.values() if recorder in fact.backend.split(",")]
    wrapped = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL"
    if wrapped or any(not 0 <= beat.pg_id < len(facts) for beat in beats):
        return beats  # in detail, torch makes a further group of Gloo for each
    return [
        replace(beat, name=facts[beat.pg_id].name, description=facts[beat.pg_id].description)
        for beat in beats
    ]


def _backend_name(group: Foreign, told: object) -> str:
    names = sorted(set(backends_of(group).values()))
    return ",".join(names) if names else str(told)


def pg_config(state: ArmedProcess) -> dict[str, dict[str, str]]:
    """All groups in the layout of torch's `pg_config`: by name, the ranks as text."""
    return {
        fact.name: {
            "name": fact.name,
            "desc": fact.description,
            "ranks": str(list(fact.ranks)),
        }
        for fact in list(state.groups.values())
    }
