"""The quick way of a send or receive on Gloo: what is kept of a place that calls again and again.

While a rank waits for a message its caches go to others, and whatever is touched first afterwards
costs up to a microsecond a function, however little it does: so the wrapper (`wrap`) writes its
beat and its entry itself, in one long function, with what is kept here. A test holds this way and
the long one equal. Whatever is unusual goes the long way: a new call site or stack or shape,
several backends in a group, coalescing, lists of tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Final

from unhang.record.calls.groups import CHANNELS
from unhang.record.calls.recorder import Recorder
from unhang.record.calls.ring import Channel, Foreign, RingEntry
from unhang.record.calls.sites import MACHINERY, RawStack
from unhang.record.contact.beat import Beat

__all__ = ["KnownPlace", "KnownPlaces", "QuickEntry"]

_NOTHING: Final[tuple[RawStack, RawStack, RawStack]] = ((), (), ())


class QuickEntry(RingEntry):
    """An entry whose attributes the wrapper of a send or receive sets one by one."""

    is_p2p = True

    __init__ = object.__init__
    """Nothing is set yet, and no function of Python's is called."""


class KnownPlace:
    """A place from which sends or receives are made on one group, with all frames below it.

    Attributes:
        frames: Code object and instruction offset, innermost first.
        slot: Its number in the heartbeat, as of `beat` and its `made`: it may be given away.
        name: What entries are called, but for the peer.
        channel: Of the group; None where the long way has to be gone.
    """

    __slots__ = ("beat", "channel", "frames", "made", "name", "ref", "slot", "stack")

    def __init__(self) -> None:
        self.frames: tuple[tuple[object, object], ...] = ()
        self.stack: RawStack = ()
        self.slot, self.made, self.name = 0, -1, ""
        self.channel: Channel | None = None
        self.beat: Beat | None = None
        self.ref: Callable[[], Foreign] = lambda: None


class KnownPlaces:
    """The places of one method's calls; `nowhere` is none of them."""

    def __init__(self, op: str) -> None:
        """`op` is "send", "recv" or, for a method that always goes the long way, ""."""
        self.op = op
        self.nowhere = KnownPlace()
        self.known: dict[int, KnownPlace] = {}

    def of(self, recorder: Recorder, group: Foreign, frame: FrameType) -> KnownPlace:
        """The place that calls, from the second time on that it does; `nowhere` else.

        Args:
            recorder: Ours.
            group: The process group.
            frame: Of the caller of the method.
        """
        channel = CHANNELS.get(id(group))
        if not self.op or channel is None or channel.backend != "gloo" or channel.bare:
            return self.nowhere
        if recorder.stacks is None or channel.ref() is not group:
            return self.nowhere
        site: FrameType | None = frame
        while site is not None and MACHINERY[site.f_code.co_filename]:
            site = site.f_back
        if site is None:
            return self.nowhere
        key = (id(site.f_code), site.f_lasti, self.op, channel.name)
        slot = recorder.beat.slots.get(key, 0)
        place = self.known.get(slot)
        stack, codes, offsets = recorder.stacks.known.get(slot, _NOTHING)
        if place is None or place.stack is not stack or place.channel is not channel:
            place = KnownPlace()
            place.frames = tuple(zip(codes, offsets, strict=True))
            place.stack, place.slot, place.channel, place.ref = stack, slot, channel, channel.ref
            place.name = f"gloo:{self.op} {channel.rank}{'->' if self.op == 'send' else '<-'}"
            self.known[slot] = place
        walker: Foreign = frame
        for code, offset in place.frames:
            if walker is None or walker.f_lasti != offset or walker.f_code is not code:
                return self.nowhere
            walker = walker.f_back
        if walker is not None or not slot:
            return self.nowhere
        place.beat, place.made = recorder.beat, recorder.beat.made
        return place
