"""The full recorder: every call of the groups whose backend torch does not record.

A group of C++ backends (fake, mpi, ucc, custom) is replaced, as soon as torch has made it, by a
`RecordedGroup`: a Python `ProcessGroup` with the same backends, name and store, whose methods
record and delegate. C++ finds these methods too (DDP's reducer, functional collectives), because
torch's trampolines look for them; the calls below release the GIL. A group whose class is Python
itself keeps its identity: the methods of its class are wrapped in place. Those that it inherits go
to a plain group with its backends, because torch's trampoline keeps the GIL while it makes the
call: a backend's thread that frees tensors of Python waits for that, with a lock that the call
needs (seen on Gloo, torch 2.13, in programs of more than one Python thread, and our recorder
is one).

It refuses to touch groups that torch records itself: there the wrapped entry points are enough.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import time_ns
from types import FunctionType
from typing import Any, Final

from unhang.record.calls import wrap
from unhang.record.calls.groups import backends_of, channel_of, recorded_by_torch
from unhang.record.calls.recorder import Recorder
from unhang.record.calls.ring import Foreign, RingEntry

METHODS: Final = (*wrap.COLLECTIVES, *wrap.P2P, "_start_coalescing", "_end_coalescing")

_own_classes: set[type] = set()
_recorded_class: type | None = None


def wanted(group: Foreign, mode: str) -> bool:
    """Whether a group gets the full recorder.

    Args:
        group: The group that torch has just made.
        mode: `Settings.full`.
    """
    if mode == "never" or type(group) in _own_classes:
        return False
    return mode == "always" or not recorded_by_torch(group)


def adopt(group: Foreign) -> Foreign:
    """Put a group under the full recorder; returns the group to use from now on."""
    c10d = sys.modules["torch.distributed.distributed_c10d"]
    plain: type = c10d.ProcessGroup
    if type(group) is not plain:
        _wrap_python_class(type(group), plain)
        return group
    wrapper = _around(_recorded_type(plain), group)
    _replace_in_world(c10d, group, wrapper)
    return wrapper


# ------------------------------------------------------------------ groups of C++ backends


def _recorded_type(plain: type) -> type:
    """The class of our wrappers: made once, when torch is there to derive from."""
    global _recorded_class  # noqa: PLW0603 - one class a process
    if _recorded_class is None:
        body: dict[str, Any] = {
            "__doc__": "A process group whose calls unhang records before it delegates them.",
            "__module__": __name__,
            "get_group_store": lambda self: self._unhang_inner.get_group_store(),
        }
        for method in METHODS:
            original = wrap.ORIGINALS.get(method) or plain.__dict__.get(method)
            if original is not None:
                body[method] = _method(method, original, inner=True)
        _recorded_class = type("RecordedGroup", (plain,), body)
        _own_classes.add(_recorded_class)
    return _recorded_class


def _around(cls: type, inner: Foreign) -> Foreign:
    """A wrapper around `inner`, with the same backends: C++ that goes past us works as before."""
    c10d = sys.modules["torch.distributed.distributed_c10d"]
    outer: Foreign = cls(inner.rank(), inner.size())  # the only constructor for Python classes
    outer._unhang_inner = inner
    _give_backends(c10d, outer, inner, _backends(inner))
    if inner.bound_device_id is not None:
        outer.bound_device_id = inner.bound_device_id
    outer._set_group_name(inner.group_name)
    outer._set_group_desc(inner.group_desc)
    return outer


def _backends(group: Foreign) -> dict[str, Foreign]:
    """The backends of a group, by device."""
    return {str(device): group._get_backend(device) for device in group._device_types}


def _give_backends(
    c10d: Foreign, outer: Foreign, inner: Foreign, backends: dict[str, Foreign]
) -> None:
    known: dict[str, Foreign] = c10d.Backend.backend_type_map
    custom: Foreign = c10d.ProcessGroup.BackendType.CUSTOM
    kinds = {device: known.get(name, custom) for device, name in backends_of(inner).items()}
    for kind in kinds.values():
        outer._set_default_backend(kind)
    for device, backend in backends.items():
        place = sys.modules["torch"].device(device)
        outer._register_backend(place, kinds.get(device, custom), backend)


def _replace_in_world(c10d: Foreign, old: Foreign, new: Foreign) -> None:
    """Let torch.distributed's maps and the registry of C++ name the wrapper, not the group."""
    world = c10d._world
    for mapping in (
        world.pg_map, world.pg_names, world.pg_group_ranks, world.pg_backend_config,
        world.pg_to_tag, world.pg_coalesce_state, getattr(world, "pg_flight_recorder_hooks", {}),
    ):  # fmt: skip
        if old in mapping:
            mapping[new] = mapping.pop(old)
    for groups in world.tags_to_pg.values():
        groups[:] = [new if group is old else group for group in groups]
    c10d._unregister_process_group(new.group_name)
    c10d._register_process_group(new.group_name, new)


# ------------------------------------------------------------------ groups that are Python


def _wrap_python_class(kind: type, plain: type) -> None:
    """Wrap, once, the methods of a Python group's class.

    Those that it inherits get a wrapper in Python as well: C++ calls what a class of Python's
    overrides, and takes compiled methods for its own. Where the class has the same call under
    another name (torch's `all_to_all_single` tries `alltoall_base`), torch has to find that one.
    """
    if kind in _own_classes:
        return
    _own_classes.add(kind)
    owners = {
        method: next((base for base in kind.__mro__ if method in base.__dict__), plain)
        for method in METHODS
    }
    own = {m for m, owner in owners.items() if owner is not plain and issubclass(owner, plain)}
    ops = {wrap.COLLECTIVES.get(method, method) for method in own}
    for method, owner in owners.items():
        if method in own:
            setattr(kind, method, _method(method, owner.__dict__[method], inner=False))
        elif owner is plain and method in wrap.ORIGINALS:
            original = wrap.ORIGINALS[method]
            if wrap.COLLECTIVES.get(method, method) not in ops:
                original = _without_gil(original, method, plain)
            setattr(kind, method, wrap.long_way(original, method))


def _without_gil(original: Callable[..., Any], method: str, plain: type) -> Callable[..., Any]:
    """An inherited method that is called on a plain group with the same backends."""

    def call(self: Foreign, *args: Foreign, **kwargs: Foreign) -> Foreign:
        return original(_plain_twin(self, plain), *args, **kwargs)

    return wrap.named(call, method, original)


def _plain_twin(group: Foreign, plain: type) -> Foreign:
    """A plain group with the backends that a Python group has now; itself where it has none."""
    try:
        backends = _backends(group)
        known, twin = getattr(group, "_unhang_twin", (None, group))
        if known != backends and backends:
            twin = plain(group.rank(), group.size())
            c10d = sys.modules["torch.distributed.distributed_c10d"]
            _give_backends(c10d, twin, group, backends)
            group._unhang_twin = backends, twin
    except Exception:  # noqa: BLE001 - torch says what is wrong with the group
        return group
    return twin if backends else group


def _wrap_python_work(work: Foreign) -> None:
    """Wrap, once, `wait` and `get_future` of a Work class that is Python: C++'s is wrapped."""
    kind = type(work)
    if kind in _own_classes:
        return
    _own_classes.add(kind)
    for method, wrapper in (("wait", wrap.waiting), ("get_future", _taking_future)):
        original = kind.__dict__.get(method)
        if isinstance(original, FunctionType):
            setattr(kind, method, wrap.named(wrapper(original), method, original))


def _taking_future(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Foreign) -> Foreign:
        future = original(self)
        recorder = wrap.current()
        if recorder is not None:
            recorder.followed.took_future(self, future)
        return future

    return wrapper


# ------------------------------------------------------------------ the methods


def _method(method: str, original: Callable[..., Any], *, inner: bool) -> Callable[..., Any]:
    """A recording method; `inner` says whether it delegates to the group inside the wrapper."""
    if method == "_start_coalescing":
        wrapper = _starting(original, inner=inner)
    elif method == "_end_coalescing":
        wrapper = _closing(original, inner=inner)
    else:
        wrapper = _recording(method, original, inner=inner)
    return wrap.named(wrapper, method, original)


def _recording(method: str, original: Callable[..., Any], *, inner: bool) -> Callable[..., Any]:
    """Record, delegate, follow the Work."""

    def wrapper(self: Foreign, *args: Foreign, **kwargs: Foreign) -> Foreign:
        target = self._unhang_inner if inner else self
        recorder = wrap.current()
        if recorder is None:
            return original(target, *args, **kwargs)
        entry = _begin(recorder, self, method, (*args, *kwargs.values()))
        try:
            work = original(target, *args, **kwargs)
        except BaseException as error:
            recorder.beat.failed()
            recorder.beat.enqueued()
            recorder.call_failed(method, None, error, entry)
            raise
        recorder.beat.enqueued()
        _follow(recorder, entry, work, hold=inner)
        return work

    return wrapper


def _begin(
    recorder: Recorder, group: Foreign, method: str, args: tuple[Foreign, ...]
) -> RingEntry | None:
    """The entry of a call; None where recording it failed."""
    try:
        frame = sys._getframe(2)
        op = wrap.COLLECTIVES.get(method, method)
        channel = channel_of(group)
        site = recorder.beat.entered(frame, op, channel.name)
        if method in wrap.P2P:
            return recorder.begin_p2p(channel, method, args, frame, site)
        tensors = wrap.tensors_of(method, args)
        return recorder.begin_collective(channel, op, tensors, frame, site)
    except Exception as error:  # noqa: BLE001 - an error of ours must not reach the job
        recorder.state.failures.add(f"recording {method}", error)
        return None


def _follow(recorder: Recorder, entry: RingEntry | None, work: Foreign, *, hold: bool) -> None:
    if entry is None:
        return
    try:
        if entry.channel.coalescing is not None and work is None:
            entry.enqueued(time_ns())  # the closing entry's Work is the whole group's
            return
        if work is not None:
            _wrap_python_work(work)
        recorder.followed.add(entry, work, hold=hold)
    except Exception as error:  # noqa: BLE001 - an error of ours must not reach the job
        recorder.state.failures.add("following a call", error)


def _starting(original: Callable[..., Any], *, inner: bool) -> Callable[..., Any]:
    """A coalesced group begins."""

    def wrapper(self: Foreign, *args: Foreign) -> Foreign:
        result = original(self._unhang_inner if inner else self, *args)
        if wrap.current() is not None:
            channel_of(self).coalescing = set()
        return result

    return wrapper


def _closing(original: Callable[..., Any], *, inner: bool) -> Callable[..., Any]:
    """A coalesced group ends: an entry of its own carries its state, as with NCCL."""

    def wrapper(self: Foreign, *args: Foreign) -> Foreign:
        target = self._unhang_inner if inner else self
        recorder = wrap.current()
        if recorder is None:
            return original(target, *args)
        entry = recorder.begin_closing(channel_of(self), sys._getframe(1))
        work = original(target, *args)
        _follow(recorder, entry, work, hold=inner)
        return work

    return wrapper


def batch(original: Callable[..., Any], operations: Foreign) -> Foreign:
    """batch_isend_irecv for our wrappers: coalesced where the backend coalesces, as torch would.

    Torch does that only where the group's type is exactly ProcessGroup (seen in 2.13).
    """
    first: Foreign = operations[0] if isinstance(operations, list) and operations else None
    group: Foreign = getattr(first, "group", None)
    kind: object = type(group)
    if kind is not _recorded_class:
        return original(operations)
    c10d: Foreign = sys.modules["torch.distributed.distributed_c10d"]
    device = first.tensor.device
    if not group._get_backend(device).supports_coalescing:
        return original(operations)
    c10d._check_p2p_op_list(operations)
    with c10d._coalescing_manager(group, device, async_ops=True) as manager:
        for operation in operations:
            key = "group_dst" if operation.op is c10d.isend else "group_src"
            operation.op(
                operation.tensor, group=group, tag=operation.tag, **{key: operation.group_peer}
            )
    return manager.works
