"""The Python entry points of `ProcessGroup` and `Work`, wrapped in place.

All of torch.distributed's Python functions end in these methods, so wrapping the methods sees
every call that Python issues, however it was imported, and leaves the functions' identity alone
(`P2POp` compares them). Calls issued from C++ (DDP's reducer, functional collectives) do not pass
here and cost nothing; torch's own recorder has them. Nothing is registered with c10d's dispatcher:
Python under a dispatcher key deadlocks Gloo.

Words of the heartbeat (`Word`) are plain numbers here: beside a job, a name of this module that is
looked up costs a cache line, which is more than the store.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from sys import _getframe
from threading import get_ident
from time import time_ns
from types import FrameType
from typing import Any, Final

from unhang.record.calls.follow import WorkRef
from unhang.record.calls.groups import channel_of
from unhang.record.calls.quick import KnownPlaces, QuickEntry
from unhang.record.calls.recorder import Recorder, sequence_of
from unhang.record.calls.ring import COMPLETED, STARTED, Channel, Foreign, RingEntry
from unhang.record.calls.sites import MACHINERY
from unhang.record.contact.beat import Beat

__all__ = [
    "COLLECTIVES",
    "ORIGINALS",
    "P2P",
    "attach",
    "current",
    "detach",
    "install",
    "installed",
    "named",
    "tensors_of",
    "waiting",
]

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

ORIGINALS: Final[dict[str, Callable[..., Any]]] = {}
"""The methods as torch has them; `Work.wait` is under "wait"."""

_tensor: Foreign = None
_recorder: Recorder | None = None
_last: tuple[int, str, Channel | None] | None = None


def attach(recorder: Recorder) -> None:
    """Let the wrapped methods report to `recorder`."""
    global _recorder  # noqa: PLW0603 - the methods of a class have one state
    _recorder = recorder


def detach() -> None:
    """Let the wrapped methods pass calls through (after fork)."""
    global _recorder, _last  # noqa: PLW0603 - same
    _recorder = _last = None


def current() -> Recorder | None:
    """Who the wrapped methods report to."""
    return _recorder


def installed() -> bool:
    """Whether the methods are wrapped in this process."""
    return bool(ORIGINALS)


def install(group_class: type, work_class: type) -> None:
    """Wrap the methods of torch's `ProcessGroup` and `Work`; a second time does nothing.

    A method that this torch lacks is left out.
    """
    global _tensor  # noqa: PLW0603 - torch is there only now
    if installed():
        return
    _tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    for method, op in COLLECTIVES.items():
        _wrap(group_class, method, lambda original, m=method, op=op: _collective(original, m, op))
    for method in P2P:
        _wrap(group_class, method, lambda original, method=method: _p2p(original, method))
    _wrap(group_class, "monitored_barrier", _monitored_barrier)
    _wrap(work_class, "wait", waiting)


def _wrap(owner: type, method: str, wrapper: Callable[..., Callable[..., Any]]) -> None:
    original = owner.__dict__.get(method)
    if original is not None:
        ORIGINALS[method] = original
        setattr(owner, method, named(wrapper(original), method, original))


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
    return wrapper


def tensors_of(method: str, args: tuple[Foreign, ...]) -> tuple[Foreign, Foreign]:
    """The arguments of a collective's method that hold its inputs and its outputs."""
    if method == "barrier":
        return (), ()
    return (args[0], args[0]) if method in IN_PLACE else (args[1], args[0])


def _enter(
    recorder: Recorder, group: Foreign, op: str, frame: FrameType, args: tuple[Foreign, ...] = ()
) -> tuple[Channel | None, int]:
    """Heartbeat before a call: the channel and the number of the site; None where that failed."""
    try:
        channel = channel_of(group)
        return channel, recorder.beat.entered(frame, op, channel.name, _elements(args))
    except Exception as error:  # noqa: BLE001 - an error of ours must not reach the job
        recorder.state.failures.add(f"heartbeat of {op}", error)
        return None, 0


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


class _Usual:
    """The last place from which a method was called: mostly the next one, too.

    A frame is found again by its depth, which spares looking at those between.
    """

    __slots__ = ("beat", "channel", "code", "depth", "made", "offset", "ref", "slot")

    def __init__(self) -> None:
        self.depth, self.offset, self.slot, self.made = 1, -1, 0, -1
        self.code: Foreign = None
        self.beat: Beat | None = None
        self.channel: Channel | None = None
        self.ref: Callable[[], Foreign] = lambda: None

    def remember(self, frame: FrameType, slot: int, channel: Channel, beat: Beat) -> None:
        """Keep a place.

        Args:
            frame: Of the caller of the method.
            slot: The place's number in the heartbeat.
            channel: Of the group.
            beat: The heartbeat; when it takes another place, that may get the number of this one.
        """
        site: FrameType | None = frame
        depth = 1
        while site is not None and MACHINERY[site.f_code.co_filename]:
            site, depth = site.f_back, depth + 1
        if site is not None:
            self.depth, self.code, self.offset = depth, site.f_code, site.f_lasti
            self.slot, self.channel, self.ref, self.made = slot, channel, channel.ref, beat.made
            self.beat = beat


def _collective(  # noqa: C901 - one long function is quicker than several (see `quick`)
    original: Callable[..., Any], method: str, op: str
) -> Callable[..., Any]:
    """The wrapper of a collective: heartbeat, and a note if it raises.

    An entry as well for a group that was there before we were, and that torch does not record.
    A call from the place of the last one, on its group, takes no further function (see `quick`).
    """
    usual = _Usual()
    has_root = method in ROOTED

    def wrapper(self: Foreign, *args: Foreign, **kwargs: Foreign) -> Foreign:
        global _last  # noqa: PLW0603 - which call the next wait belongs to
        recorder = _recorder
        if recorder is None:
            return original(self, *args, **kwargs)
        beat, entry = recorder.beat, None
        try:
            frame = _getframe(usual.depth)
            first: Foreign = args[0]
            if type(first) is list:
                first = first[0]
            is_usual = (
                frame.f_code is usual.code
                and frame.f_lasti == usual.offset
                and usual.ref() is self
                and usual.beat is beat
                and usual.made == beat.made
                and type(first) is _tensor
            )
        except (ValueError, IndexError):
            is_usual = False
        if is_usual:
            channel, words = usual.channel, beat.words
            words[23] = first.numel()  # Word.NUMEL
            words[18] = usual.slot  # Word.SITE
            beat.calls = words[12] = beat.calls + 1  # Word.CALLS
            words[14] = time_ns()  # Word.CALL_NS
        else:
            frame = _getframe(1)
            channel, slot = _enter(recorder, self, op, frame, args)
            if channel is not None and channel.bare:
                entry = _begin(recorder, channel, method, (*args, *kwargs.values()), frame, slot)
            elif channel is not None and slot:
                usual.remember(frame, slot, channel, beat)
        if has_root:
            _note_root(beat, args)
        try:
            work = original(self, *args, **kwargs)
        except BaseException as error:
            beat.failed()
            beat.enqueued()
            recorder.call_failed(op, channel, error, entry)
            raise
        beat.enqueues = beat.words[13] = beat.enqueues + 1  # Word.ENQUEUED
        _last = (id(work), op, channel)
        if entry is not None:
            _follow(recorder, entry, work)
        return work

    return wrapper


def _p2p(original: Callable[..., Any], method: str) -> Callable[..., Any]:  # noqa: C901, PLR0915
    """The wrapper of a send or receive: an entry as well, where torch makes none (Gloo).

    A call from the place of the last one, on its group, is written down here and in no function
    further (see `quick`, which also says why this one is long); `waiting` does so at its end.
    """
    places = KnownPlaces("" if method == "recv_anysource" else method)
    usual = places.nowhere

    def wrapper(self: Foreign, *args: Foreign, **kwargs: Foreign) -> Foreign:  # noqa: C901, PLR0915
        global _last  # noqa: PLW0603 - which call the next wait belongs to
        nonlocal usual
        recorder = _recorder
        if recorder is None:
            return original(self, *args, **kwargs)
        beat, frame, place, quick = recorder.beat, _getframe(1), usual, None
        entry: RingEntry | None
        channel: Channel | None
        words = beat.words
        try:
            (tensor,), peer, tag = args
            walker: Foreign = frame
            for code, offset in place.frames:
                if walker.f_lasti != offset or walker.f_code is not code:
                    break
                walker = walker.f_back
            is_usual = walker is None and place.ref() is self
            if not is_usual or place.beat is not beat or place.made != beat.made:
                usual = place = places.of(recorder, self, frame)
            channel = place.channel
            is_plain = type(tag) is int and not kwargs
            if channel is not None and channel.coalescing is None and is_plain:
                facts = recorder.tensors[tensor.shape, tensor.dtype]
                numel = tensor.numel()
                op_id = self._get_sequence_number_for_group() + 1
                quick = QuickEntry()
                quick.on_host = channel.on_host = tensor.is_cpu
        except Exception:  # noqa: BLE001 - the long way says what is wrong
            quick = None
        if quick is None or channel is None:
            channel, site = _enter(recorder, self, method, frame, args)
            entry = _begin(recorder, channel, method, (*args, *kwargs.values()), frame, site)
        else:
            words[23] = numel  # Word.NUMEL
            words[18] = place.slot  # Word.SITE
            beat.calls = words[12] = beat.calls + 1  # Word.CALLS
            words[14] = quick.created_ns = time_ns()  # Word.CALL_NS
            quick.channel, quick.name = channel, f"{place.name}{peer}"
            quick.inputs = quick.outputs = facts
            quick.stack, quick.thread, quick.tag = place.stack, get_ident(), tag
            channel.op_id += 1
            quick.op_id, quick.seq = op_id, channel.seq
            channel.p2p_seq = quick.p2p_seq = channel.p2p_seq + 1
            recorder.ring.append(quick)
            entry = quick
        try:
            work = original(self, *args, **kwargs)
        except BaseException as error:
            beat.failed()
            beat.enqueued()
            recorder.call_failed(method, channel, error, entry)
            raise
        beat.enqueues = words[13] = beat.enqueues + 1  # Word.ENQUEUED
        _last = (id(work), method, channel)
        if quick is not None and work is not None:
            quick.state, quick.started_ns = STARTED, time_ns()
            quick.work = reference = WorkRef(work, recorder.followed.gone)
            reference.key = key = id(work)
            recorder.followed.by_id[key] = quick
        elif entry is not None:
            _follow(recorder, entry, work)
        return work

    return wrapper


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
        entry = recorder.begin_p2p(channel, method, args, frame, site)
        # Gloo numbers sends and receives like all operations of the group, collectives included.
        entry.op_id = sequence_of(channel) + 1
    except Exception as error:  # noqa: BLE001 - an error of ours must not reach the job
        recorder.state.failures.add(f"recording {method}", error)
        return None
    return entry


def _follow(recorder: Recorder, entry: RingEntry, work: Foreign) -> None:
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
        channel, site = _enter(recorder, self, "monitored_barrier", frame)
        entry = _begin_barrier(recorder, channel, frame, site)
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            recorder.beat.failed()
            recorder.beat.enqueued()
            recorder.call_failed("monitored_barrier", channel, error, entry)
            raise
        recorder.beat.enqueued()
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
        entry.op_id = sequence_of(channel) + 1
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
        beat, followed = recorder.beat, recorder.followed
        words = beat.words
        beat.waits = words[15] = beat.waits + 1  # Word.WAITS
        entry = followed.by_id.get(id(self)) if followed.by_id else None
        if entry is not None and not entry.wait_ns:
            entry.wait_ns = time_ns()
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            beat.failed()
            beat.waited()
            last = _last
            mine = last is not None and last[0] == id(self)
            recorder.wait_failed(self, error, last[1:] if last and mine else None)
            raise
        beat.waiteds = words[16] = beat.waiteds + 1  # Word.WAITED
        words[17] = now_ns = time_ns()  # Word.WAITED_NS
        if entry is not None:
            if entry.is_p2p and entry.on_host and entry.state is STARTED and not entry.abandoned:
                followed.by_id.pop(id(self), None)
                entry.state, entry.completed_ns, entry.work = COMPLETED, now_ns, None
            else:
                followed.waited(entry, self, now_ns)
        return result

    return wrapper
