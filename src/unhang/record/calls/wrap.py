"""The Python entry points of `ProcessGroup` and `Work`, wrapped in place.

All of torch.distributed's Python functions end in these methods, so wrapping the methods sees
every call that Python issues, however it was imported, and leaves the functions' identity alone
(`P2POp` compares them). Calls issued from C++ (DDP's reducer, functional collectives) do not pass
here and cost nothing; torch's own recorder has them. Nothing is registered with c10d's dispatcher:
Python under a dispatcher key deadlocks Gloo.

This is the long way, which every call can go. Where there is a compiled library (`quick`), it
stands in front, and passes on what is not usual.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from sys import _getframe
from time import time_ns
from types import FrameType
from typing import Any, Final

from unhang.record.calls.groups import channel_of
from unhang.record.calls.quick import (
    COLLECTIVE,
    NO_PEER,
    ROOTED_COLLECTIVE,
    SEND_OR_RECEIVE,
    WAIT,
    Quick,
    entry_of,
    found,
)
from unhang.record.calls.recorder import Recorder
from unhang.record.calls.remembering import NOTHING, Given, given_by, splits_of
from unhang.record.calls.ring import Channel, Foreign, RingEntry
from unhang.record.calls.sites import capture
from unhang.record.contact.beat import Beat

COLLECTIVES: Final[dict[str, str]] = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "allreduce_coalesced",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "allgather": "all_gather",
    "allgather_coalesced": "all_gather_coalesced",
    "_allgather_base": "_all_gather_base",
    "all_gather_single": "_all_gather_base",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor_coalesced",
    "all_gather_single_coalesced": "all_gather_into_tensor_coalesced",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "_reduce_scatter_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor_coalesced",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
}
"""Methods of `ProcessGroup` and what torch's recorder calls them."""

IN_PLACE: Final = frozenset({"allreduce", "allreduce_coalesced", "broadcast", "reduce"})
"""Methods whose first argument is both input and output; the others have outputs, then inputs."""

ROOTED: Final = frozenset({"broadcast", "reduce", "gather", "scatter"})
"""Methods whose last argument says which rank of the group the data come from, or go to."""

P2P: Final = ("send", "recv", "recv_anysource")

_BARRIER: Final = "monitored_barrier"
_ALL_TO_ALL: Final = "all_to_all"

ORIGINALS: Final[dict[str, Callable[..., Any]]] = {}
"""The methods as torch has them; `Work.wait` is under "wait"."""

_tensor: Foreign = None
_quick: Quick | None = None
_recorder: Recorder | None = None
_last: tuple[int, str, Channel | None] | None = None


def attach(recorder: Recorder) -> None:
    """Let the wrapped methods report to `recorder`; again where it has got another heartbeat."""
    global _recorder  # noqa: PLW0603 - the methods of a class have one state
    _recorder = recorder
    if _quick is not None:
        _quick.attach(recorder, _tensor)


def detach() -> None:
    """Let the wrapped methods pass calls through (after fork)."""
    global _recorder, _last  # noqa: PLW0603 - same
    _recorder = _last = None
    if _quick is not None:
        _quick.detach()


def current() -> Recorder | None:
    """Who the wrapped methods report to."""
    return _recorder


def installed() -> bool:
    """Whether the methods are wrapped in this process."""
    return bool(ORIGINALS)


def install(
    group_class: type, work_class: type, tensor: Foreign = None, *, compiled: bool = True
) -> None:
    """Wrap the methods of torch's `ProcessGroup` and `Work`; a second time does nothing.

    A method that this torch lacks is left out.

    Args:
        group_class: Torch's, as the next.
        work_class: Torch's.
        tensor: The class of tensors, where calls are to take the quick way.
        compiled: Whether they may.
    """
    global _quick, _tensor
    if installed():
        return
    _tensor, _quick = tensor, found() if compiled and tensor is not None else None
    if _quick is not None:
        asked = _quick_raised, _quick_wait_raised, _quick_follow
        for each in asked:
            not_compiled(each)
        _quick.open(*asked)
    for method, op in COLLECTIVES.items():
        kind = ROOTED_COLLECTIVE if method in ROOTED else COLLECTIVE
        _wrap(group_class, method, (kind, op))
    for method in P2P:
        _wrap(group_class, method, (SEND_OR_RECEIVE, method))
    _wrap(group_class, _BARRIER)
    _wrap(work_class, "wait", (WAIT, ""))


def long_way(original: Callable[..., Any], method: str) -> Callable[..., Any]:
    """The wrapper in Python of a method."""
    if method == "wait":
        wrapper = waiting(original)
    elif method == _BARRIER:
        wrapper = _monitored_barrier(original)
    else:
        wrapper = _recording(original, method, COLLECTIVES.get(method, method))
    return named(wrapper, method, original)


def _wrap(owner: type, method: str, quick: tuple[int, str] | None = None) -> None:
    original = owner.__dict__.get(method)
    if original is None:
        return
    ORIGINALS[method] = original
    long = long_way(original, method)
    if _quick is None or quick is None:
        setattr(owner, method, long)
    else:
        setattr(owner, method, _quick.wrap(owner, method, *quick, (original, long)))


def named(
    wrapper: Callable[..., Any], method: str, original: Callable[..., Any]
) -> Callable[..., Any]:
    """Give a wrapper the name and documentation of what it wraps.

    The code object's name matters too: by it, and by the first argument, pybind11 sees that a
    virtual method is called from its own override, and does not call it again without end.
    """
    wrapper.__code__ = wrapper.__code__.replace(co_name=method)
    wrapper.__name__ = wrapper.__qualname__ = method
    wrapper.__doc__ = original.__doc__
    return not_compiled(wrapper)


def not_compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keep torch.compile from tracing one of our functions, and from compiling what it calls.

    It follows every Python function below a compiled one, and ends the job at some things that ours
    do. Torch before 2.7 offers no way to exclude the functions below.
    """
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    compilers = getattr(sys.modules.get("torch._C"), "_dynamo", None)
    frames: Foreign = getattr(compilers, "eval_frame", None)
    with suppress(AttributeError, TypeError):
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))
    return function


def tensors_of(method: str, args: tuple[Foreign, ...]) -> tuple[Foreign, Foreign]:
    """The arguments of a collective's method that hold its inputs and its outputs."""
    if method == "barrier":
        return (), ()
    return (args[0], args[0]) if method in IN_PLACE else (args[1], args[0])


def _enter(
    recorder: Recorder, group: Foreign, names: tuple[str, str], frame: FrameType,
    args: tuple[Foreign, ...] = (),
) -> tuple[Channel | None, int]:  # fmt: skip
    """Heartbeat before a call: the channel and the number of the site; None where that failed.

    `names` are those of its method and of the operation.
    """
    beat, (method, op) = recorder.beat, names
    try:
        channel = channel_of(group)
        given = _given(recorder, channel, method, args)
        site = beat.entered(frame, op, channel.name, _elements(args), given)
        if op == _ALL_TO_ALL and (splits := splits_of(args)):
            beat.latest.split(*splits)
    except Exception as error:  # noqa: BLE001 - an error of ours must not reach the job
        recorder.state.failures.add(f"heartbeat of {op}", error)
        return None, 0
    return channel, site


def _given(recorder: Recorder, channel: Channel, method: str, args: tuple[Foreign, ...]) -> Given:
    """What a call is given; nothing where it comes in a form of its own, as with names."""
    group = recorder.beat.latest.group(channel)
    try:
        return given_by(group, channel, method, args)
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError):
        return NOTHING._replace(group=group)


def _elements(args: tuple[Foreign, ...]) -> int:
    """Elements of the first tensor of a call; -1 where it has none."""
    first: Foreign = args[0] if args else None
    while type(first) is list and first:
        first = first[0]
    try:
        return int(first.numel())
    except AttributeError:
        return -1


def _note_root(beat: Beat, args: tuple[Foreign, ...]) -> None:
    """Torch's recorder has no roots, and ranks that name different ones wait for ever."""
    try:
        beat.rooted(args[-1].rootRank)
    except (IndexError, AttributeError, TypeError):
        return


def _recording(original: Callable[..., Any], method: str, op: str) -> Callable[..., Any]:
    """The wrapper of a collective, a send or a receive: heartbeat, and a note if it raises.

    An entry as well where torch makes none: for a send or receive on Gloo, and for any call of a
    group that was there before we were and that torch does not record.
    """
    has_root, is_p2p = method in ROOTED, method in P2P

    def wrapper(self: Foreign, *args: Foreign, **kwargs: Foreign) -> Foreign:
        global _last  # noqa: PLW0603 - which call the next wait belongs to
        recorder = _recorder
        if recorder is None:
            return original(self, *args, **kwargs)
        frame, entry = _getframe(1), None
        channel, site = _enter(recorder, self, (method, op), frame, args)
        latest = recorder.beat.latest
        at = latest.at
        if channel is not None and (is_p2p or channel.bare):
            given = (*args, *kwargs.values())
            entry = _begin(recorder, channel, method, given, frame, site)
        if has_root:
            _note_root(recorder.beat, args)
        if _quick is not None and channel is not None and site and not channel.bare:
            _keep(_quick, recorder, method, (self, channel, site), args, frame, entry)
        try:
            work = original(self, *args, **kwargs)
        except BaseException as error:
            latest.ends(at, time_ns(), failed=True)
            _raised(op, channel, error, entry)
            raise
        recorder.beat.enqueued()
        latest.returned(at, work)
        _last = (id(work), op, channel)
        if entry is not None:
            _follow(entry, work)
        return work

    return wrapper


def _keep(
    quick: Quick,
    recorder: Recorder,
    method: str,
    place: tuple[Foreign, Channel, int],
    args: tuple[Foreign, ...],
    frame: FrameType,
    entry: RingEntry | None,
) -> None:
    """Have the next call from this place, on this group, take the quick way."""
    try:
        group, channel, site = place
        beat = recorder.beat
        numbers = NO_PEER, site, beat.places[0], beat.latest.group(channel)
        if method not in P2P:
            quick.keep(method, group, channel, capture(frame, to_site=True), numbers)
        elif channel.backend and method != "recv_anysource":
            numbers = args[1], *numbers[1:]
            if entry is None and channel.backend != "gloo":  # torch makes the entry
                quick.keep(method, group, channel, capture(frame, to_site=True), numbers)
            elif entry is not None and entry.stack:
                quick.keep(method, group, channel, entry.stack, numbers, entry.name)
    except Exception as error:  # noqa: BLE001 - an error of ours must not reach the job
        recorder.state.failures.add(f"keeping a place of {method}", error)


def _raised(
    op: str, channel: Channel | None, error: BaseException, entry: RingEntry | None
) -> None:
    """A call is about to end by raising."""
    recorder = _recorder
    if recorder is not None:
        recorder.beat.failed()
        recorder.beat.enqueued()
        recorder.call_failed(op, channel, error, entry)


def _begin(
    recorder: Recorder,
    channel: Channel | None,
    method: str,
    args: tuple[Foreign, ...],
    frame: FrameType,
    site: int,
) -> RingEntry | None:
    """An entry for a call that torch does not record: P2P on Gloo, anything on a bare group."""
    try:
        if channel is None or (channel.bare and not recorder.full):
            return None
        if method not in P2P:
            op = COLLECTIVES[method]
            return recorder.begin_collective(channel, op, tensors_of(method, args), frame, site)
        if channel.bare:
            return recorder.begin_p2p(channel, method, args, frame, site)
        if (channel.backend or channel.by_device.get(args[0][0].device.type)) != "gloo":
            return None
        # Gloo moves memory of the host alone, and numbers these like all operations of the group,
        # collectives from C++ included: `dumps.dumpfile` finds the number next to torch's entries.
        entry = recorder.begin_p2p(channel, method, args, frame, site)
        entry.on_host, entry.op_id = True, -1
    except Exception as error:  # noqa: BLE001 - an error of ours must not reach the job
        recorder.state.failures.add(f"recording {method}", error)
        return None
    return entry


def _follow(entry: RingEntry, work: Foreign) -> None:
    recorder = _recorder
    if recorder is None:
        return
    try:
        # On a bare group C++ may be the caller, who takes the Work from our hands.
        recorder.followed.add(entry, work, hold=entry.channel.bare)
    except Exception as error:  # noqa: BLE001 - an error of ours must not reach the job
        recorder.state.failures.add("following a call", error)


def _monitored_barrier(original: Callable[..., Any]) -> Callable[..., Any]:
    """The wrapper of monitored_barrier, which blocks, and which torch does not record."""

    def wrapper(self: Foreign, *args: Foreign, **kwargs: Foreign) -> Foreign:
        recorder = _recorder
        if recorder is None:
            return original(self, *args, **kwargs)
        frame = _getframe(1)
        channel, site = _enter(recorder, self, (_BARRIER, _BARRIER), frame)
        latest = recorder.beat.latest
        at = latest.at
        entry = _begin_barrier(recorder, channel, frame, site)
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            latest.ends(at, time_ns(), failed=True)
            _raised("monitored_barrier", channel, error, entry)
            raise
        recorder.beat.enqueued()
        latest.ends(at, time_ns())
        if entry is not None:
            recorder.followed.add(entry, None, hold=False)
        return result

    return wrapper


def _begin_barrier(
    recorder: Recorder, channel: Channel | None, frame: FrameType, site: int
) -> RingEntry | None:
    if channel is None:
        return None
    try:
        entry = recorder.begin_collective(channel, "monitored_barrier", ((), ()), frame, site)
        entry.op_id = -1
    except Exception as error:  # noqa: BLE001 - an error of ours must not reach the job
        recorder.state.failures.add("recording monitored_barrier", error)
        return None
    return entry


def waiting(original: Callable[..., Any]) -> Callable[..., Any]:
    """A wrapper of a Work's `wait`: who waits, and how it ended."""

    def wrapper(self: Foreign, *args: Foreign, **kwargs: Foreign) -> Foreign:
        recorder = _recorder
        if recorder is None:
            return original(self, *args, **kwargs)
        recorder.beat.waiting()
        latest = recorder.beat.latest
        latest.awaited(id(self))
        entry = recorder.followed.by_id.get(id(self))
        if entry is not None and not entry.wait_ns:
            entry.wait_ns = time_ns()
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            latest.ended(id(self), time_ns(), failed=True)
            last = _last
            mine = last is not None and last[0] == id(self)
            _wait_raised(self, error, last[1:] if last and mine else None)
            raise
        now_ns = recorder.beat.waited()
        latest.ended(id(self), now_ns)
        if entry is not None:
            recorder.followed.waited(entry, self, now_ns)
        return result

    return wrapper


def _wait_raised(
    work: Foreign,
    error: BaseException,
    last: tuple[str, Channel | None] | None,
    entry: RingEntry | None = None,
) -> None:
    """A wait is about to end by raising; `last` is the newest call, if the Work is its own."""
    recorder = _recorder
    if recorder is not None:
        recorder.beat.failed()
        recorder.beat.waited()
        recorder.wait_failed(work, error, last, entry)


# ------------------------------------------------------------------ asked by the quick way


def _taken(row: tuple[Any, ...] | None) -> RingEntry | None:
    """An entry that the quick way hands over, for good."""
    recorder = _recorder
    if row is None or recorder is None:
        return None
    entry = entry_of(row)
    recorder.ring.keep(entry)
    return entry


def _quick_raised(
    op: str, channel: Channel, error: BaseException, row: tuple[Any, ...] | None
) -> None:
    """A call is about to end by raising."""
    _raised(op, channel, error, _taken(row))


def _quick_wait_raised(
    work: Foreign,
    error: BaseException,
    last: tuple[str, Channel | None] | tuple[()] | None,
    row: tuple[Any, ...] | None,
) -> None:
    """A wait is about to end by raising."""
    entry = _taken(row)
    if entry is not None:
        last = entry.name, entry.channel
    elif last is None and _last is not None and _last[0] == id(work):
        last = _last[1:]
    _wait_raised(work, error, last or None, entry)


def _quick_follow(row: tuple[Any, ...], work: Foreign) -> None:
    """A call gave no usual Work."""
    entry = _taken(row)
    if entry is not None:
        _follow(entry, work)
