"""The quick way of a send or receive on Gloo: its beat and its entry in one function.

While a rank waits for a message its caches go to others, and whatever is touched first afterwards
costs up to a microsecond a function, however little it does: in real jobs of two ranks this one
costs half of the dozen short ones that it repeats (`Beat.entered`, `Recorder.begin_p2p`,
`SiteStacks.of`). A test holds the two ways equal. Whatever is unusual goes the long way: a new call
site or stack or shape, several backends in a group, coalescing, lists of tensors.
"""

from __future__ import annotations

from threading import get_ident
from time import time_ns
from types import FrameType
from typing import Any, Final

from unhang.record.calls.groups import CHANNELS
from unhang.record.calls.recorder import Recorder
from unhang.record.calls.ring import Foreign, RingEntry
from unhang.record.calls.sites import MACHINERY, RawStack
from unhang.record.contact.heartbeat import Word

__all__ = ["entry_of"]

_CALLS, _CALL_NS, _SITE, _NUMEL = map(int, (Word.CALLS, Word.CALL_NS, Word.SITE, Word.NUMEL))
_ARGUMENTS: Final = 3
_NOWHERE: Final = (0, 0, "", "")
_NOTHING: Final[tuple[RawStack, RawStack, RawStack]] = ((), (), ())


def entry_of(
    recorder: Recorder, group: Foreign, op: str, args: tuple[Any, ...], frame: FrameType
) -> RingEntry | None:
    """The entry of a send or receive on a group that is all Gloo; None to go the long way.

    That is also the answer where something fails here: the long way then says what.

    Args:
        recorder: Ours.
        group: The process group.
        op: "send" or "recv".
        args: What the method was called with: tensors, peer and tag.
        frame: Of the caller.
    """
    channel = CHANNELS.get(id(group))
    if channel is None or channel.backend != "gloo" or channel.bare or len(args) != _ARGUMENTS:
        return None
    tensors, peer, tag = args
    is_same = id(channel.ref()) == id(group)
    if not is_same or channel.coalescing is not None or recorder.stacks is None:
        return None
    beat = recorder.beat
    site: FrameType | None = frame
    while site is not None and MACHINERY[site.f_code.co_filename]:
        site = site.f_back
    place = (id(site.f_code), site.f_lasti, op, channel.name) if site is not None else _NOWHERE
    slot = beat.slots.get(place, 0)
    stack, codes, offsets = recorder.stacks.known.get(slot, _NOTHING)
    walker: FrameType | None = frame
    for code, offset in zip(codes, offsets):  # noqa: B905 - strict costs a quarter more
        if walker is None or walker.f_lasti != offset or walker.f_code is not code:
            return None
        walker = walker.f_back
    try:
        (tensor,) = tensors
        facts = recorder.tensors[tensor.shape, tensor.dtype]
        numel, on_host = tensor.numel(), tensor.is_cpu
        # Gloo numbers sends and receives like all operations of the group, collectives included.
        op_id = group._get_sequence_number_for_group() + 1
    except Exception:  # noqa: BLE001 - the long way says what is wrong
        return None
    if walker is not None or not slot:
        return None
    now = time_ns()
    words = beat.words
    words[_NUMEL] = numel
    words[_SITE] = slot
    beat.calls = words[_CALLS] = beat.calls + 1
    words[_CALL_NS] = now
    name = f"gloo:{op} {channel.rank}{'->' if op == 'send' else '<-'}{peer}"
    entry = RingEntry(channel, name, (facts, facts), stack, get_ident(), now)
    entry.on_host = channel.on_host = on_host
    entry.is_p2p = True
    entry.tag = tag if isinstance(tag, int) else 0
    entry.op_id = op_id
    channel.op_id += 1
    channel.p2p_seq = entry.p2p_seq = channel.p2p_seq + 1
    entry.seq = channel.seq
    recorder.state.ring.append(entry)
    return entry
