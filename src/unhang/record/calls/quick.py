"""The quick way of a call: compiled methods in the place of Python's, where there is a library.

While a rank waits for a message its caches go to others, and whatever is touched first afterwards
costs up to a microsecond a function of Python's, however little it does. So a call from a place
that is known, on its group, with ordinary arguments, is noted by a small library in Rust
(`native/recorder`); all others go the long way (`wrap`), which is also the reference. Where the
library is missing (other systems, Python 3.10, free-threaded Python) every call goes that way.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

from unhang.built import fingerprint, fits
from unhang.record.calls.follow import ended
from unhang.record.calls.recorder import Recorder
from unhang.record.calls.remembering import counts, known_dtypes
from unhang.record.calls.ring import COMPLETED, SCHEDULED, STARTED, Channel, Foreign, RingEntry
from unhang.record.calls.sites import MAX_FRAMES, RawStack

_NAME: Final = "record/calls/compiled.so"
LIBRARY: Final = Path(__file__).parents[2] / _NAME

COLLECTIVE, ROOTED_COLLECTIVE, SEND_OR_RECEIVE, WAIT = range(4)
"""What a method is."""

NO_PEER: Final = -1
MOST_METHODS: Final = 32


class Quick:
    """The library's functions. One recorder a process is what they report to."""

    def __init__(self, path: Path) -> None:
        self._library = library = ctypes.PyDLL(str(path))
        text, size, whole = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int64
        any_object, pointer = ctypes.py_object, ctypes.c_void_p
        takes = {
            "fingerprint": (text, size), "open": (any_object,),
            "wrap": (any_object, size, ctypes.c_int, text, text, any_object),
            "attach": (pointer, pointer, pointer, size, any_object), "detach": (),
            "keep": (size, whole, whole, whole, pointer, whole, ctypes.c_int, any_object),
            "entries": (), "followed": (), "ended": (any_object,), "gone": (any_object,),
        }  # fmt: skip
        for name, types in takes.items():
            function = getattr(library, f"unhang_recorder_{name}")
            function.argtypes, function.restype = types, None
        library.unhang_recorder_fingerprint.restype = size
        library.unhang_recorder_open.restype = ctypes.c_int
        for name in ("wrap", "entries", "followed"):
            getattr(library, f"unhang_recorder_{name}").restype = any_object
        self._numbers: dict[str, int] = {}
        self._texts: list[bytes | None] = []

    def fingerprint(self) -> str:
        """Of what it was built from."""
        text = ctypes.create_string_buffer(64)
        length = self._library.unhang_recorder_fingerprint(text, 64)
        return text.raw[:length].decode()

    def open(
        self,
        raised: Callable[..., None],
        wait_raised: Callable[..., None],
        follow: Callable[..., None],
    ) -> None:
        """Say whom to call for what is done in Python; nothing else works before.

        Args:
            raised: With what the call is called, its channel, the exception, and what `entry_of`
                makes an entry of or None.
            wait_raised: With the Work, the exception, name and channel of the newest call (if that
                is another's (), if it has gone the long way None), and as before.
            follow: With what `entry_of` makes an entry of and its Work, where that is no usual one.

        Raises:
            MemoryError: There is no room.
        """
        fixed = raised, wait_raised, follow, self._library.unhang_recorder_gone
        if not self._library.unhang_recorder_open(fixed):
            raise MemoryError

    def wrap(
        self,
        owner: type,
        method: str,
        kind: int,
        op: str,
        ways: tuple[Callable[..., Any], Callable[..., Any]],
    ) -> object:
        """A method for a class, in the place of `method`; one of that name before is no more.

        Args:
            owner: The class.
            method: Name of the method.
            kind: What it is.
            op: What calls are called where they fail.
            ways: Torch's own method, and the long way.

        Raises:
            IndexError: There are too many.
        """
        number = self._numbers.setdefault(method, len(self._numbers))
        if number >= MOST_METHODS:
            raise IndexError(method)
        original, long = ways
        doc = original.__doc__.encode() if original.__doc__ else None
        texts = method.encode(), doc
        self._texts += texts  # the method keeps their addresses
        callables = op, getattr(original, "__func__", original), long
        made: object = self._library.unhang_recorder_wrap(owner, number, kind, *texts, callables)
        return made

    def attach(self, recorder: Recorder, tensor: Foreign) -> None:
        """Report to a recorder and its heartbeat; again where it has got another heartbeat.

        Args:
            recorder: Ours.
            tensor: Torch's class of tensors.
        """
        beat, ring = recorder.beat, recorder.ring
        memory = [_whole(of) for of in (beat.words, beat.places, ring.count)]
        addresses = [ctypes.addressof(each) for each in memory]
        objects = tensor, recorder.followed.by_id, recorder.described, memory, known_dtypes()
        self._library.unhang_recorder_attach(*addresses, ring.size, objects)
        ring.beside, recorder.followed.beside = self.entries, self.ask_all

    def entries(self) -> list[RingEntry]:
        """Copies of the entries that went this way, in any order."""
        return [entry_of(row) for row in self._library.unhang_recorder_entries() or ()]

    def ask_all(self) -> None:
        """Ask every Work that is followed here whether it is over."""
        for reference in self._library.unhang_recorder_followed() or ():
            work = reference()
            if work is not None and ended(work):
                self._library.unhang_recorder_ended(work)

    def detach(self) -> None:
        """Let calls through."""
        self._library.unhang_recorder_detach()

    def keep(
        self, method: str, group: Foreign, channel: Channel, stack: RawStack,
        numbers: tuple[int, int, int, int], name: str = "",
    ) -> None:  # fmt: skip
        """Keep a place from which a method was called.

        Args:
            method: Name of the method.
            group: The process group.
            channel: Of the group.
            stack: From the caller outwards to the program's own frame, or, with `name`, to the end.
            numbers: The peer, the place's number in the heartbeat, how many places that had, and
                the number of the group's row there.
            name: What entries are called, where calls have one.
        """
        number = self._numbers.get(method)
        if number is None or len(stack) >= 2 * MAX_FRAMES:
            return
        peer, slot, made, row = numbers
        objects = (group, channel.ref, channel, stack, *((name,) if name else ()))
        counters, _ = channel.counters.buffer_info()
        asked = row, counts(channel)
        self._library.unhang_recorder_keep(number, peer, made, slot, counters, *asked, objects)


def entry_of(row: tuple[Any, ...]) -> RingEntry:
    """A send or receive that went the quick way."""
    channel, name, facts, stack, thread = row[:5]
    entry = RingEntry(channel, name, (facts, facts), stack, thread, created_ns=row[9])
    entry.number, entry.seq, entry.p2p_seq, entry.tag = row[5:9]
    entry.started_ns, entry.completed_ns, entry.wait_ns = row[10:13]
    entry.state = (SCHEDULED, STARTED, COMPLETED)[row[13]]
    entry.abandoned = row[14]
    entry.is_p2p = True
    return entry


def _whole(memory: Any) -> ctypes.c_int64:  # noqa: ANN401 - whatever has a buffer
    return ctypes.c_int64.from_buffer(memory)


@cache
def found() -> Quick | None:
    """The library, if there is one that fits."""
    if not LIBRARY.is_file() or "t" in sys.abiflags:  # which has no GIL
        return None
    try:
        library = Quick(LIBRARY)
        is_ours = fits(library.fingerprint(), fingerprint(_NAME))
    except (AttributeError, OSError, UnicodeError):
        return None
    return library if is_ours else None
