"""The end of a process: uncaught exceptions, fatal signals, exits with calls still pending.

Whatever the job has installed is called as before: our excepthook dumps and then calls the one
that it found. A faulthandler that the job enabled is left alone; signals are taken only where
UNHANG_SIGNAL names one, and the job's handler is called from ours.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import functools
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, TextIO

from unhang.record.calls import wrap
from unhang.record.calls.recorder import Recorder
from unhang.record.calls.sites import program_site
from unhang.record.contact.beatlayout import Phase
from unhang.record.dumps import torchfr
from unhang.record.dumps.taking import END, take
from unhang.telltale import without_secrets

MAX_TEXT = 4000
_ENDINGS: Final[dict[str, Callable[..., Any]]] = {}
"""What ends a process, as it was before it was wrapped."""


class CrashWatch:
    """What is installed, so that it can be taken out again after fork."""

    def __init__(self, recorder: Recorder, on_exit: Callable[[], None]) -> None:
        """Make it; nothing is installed yet.

        Args:
            recorder: Ours.
            on_exit: Called last at exit: ends the thread and writes the last mark.
        """
        self.recorder = recorder
        self._on_exit = on_exit
        self._next_hook: Callable[..., object] | None = None
        self._faults: TextIO | None = None
        self._dumped = False
        atexit.register(self._exit)

    def chain_excepthook(self) -> None:
        """Put our excepthook before the one in place, once.

        Torch puts one of its own before ours in each later `init_process_group`: before that, ours
        would call itself.
        """
        if self._next_hook is None:
            self._next_hook = sys.excepthook
            sys.excepthook = self._hook

    def note_exits(self) -> None:
        """Keep from where the program asks to end: neither way leaves another trace."""
        global _watch  # noqa: PLW0603 - there is one process
        _watch = self
        for owner, name in ((sys, "exit"), (os, "_exit")):
            if name not in _ENDINGS:
                _ENDINGS[name] = getattr(owner, name)
                setattr(owner, name, _noted(_ENDINGS[name]))

    def enable_faulthandler(self, path: Path) -> str:
        """Let fatal signals write all stacks to `path`; returns it, or "" if the job has its own.

        Raises:
            OSError: The file cannot be made.
        """
        if faulthandler.is_enabled():
            return ""
        path.unlink(missing_ok=True)  # of a process of this pid that is no more, or a planted link
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._faults = os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8")
        faulthandler.enable(file=self._faults, all_threads=True)
        return str(path)

    def take_signal(self, number: int, wake_fd: int) -> str:
        """Let a signal wake the recorder's thread; returns what stands in the way, or "".

        The C handler writes the signal's number into `wake_fd` at once, even while the main
        thread is inside a blocking call that no Python handler could interrupt.
        """
        before = signal.set_wakeup_fd(wake_fd, warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
            return "the job has a wake-up descriptor of its own"
        old = signal.getsignal(number)

        def handler(number: int, frame: FrameType | None) -> None:
            if callable(old):
                old(number, frame)

        signal.signal(number, handler)
        return ""

    def release(self) -> None:
        """Undo what a forked child must not keep: its faults are not this rank's."""
        atexit.unregister(self._exit)
        if self._faults is not None:
            faulthandler.disable()
            self._faults.close()
        if sys.excepthook == self._hook and self._next_hook is not None:
            sys.excepthook = self._next_hook

    # -------------------------------------------------------------- the end

    def leaving(self, frame: FrameType, status: object, *, at_once: bool) -> None:
        """The program asks to end: keep from where, and the error that led there.

        Who handles an error by leaving (torch.multiprocessing.spawn does) calls no excepthook. A
        forked child of multiprocessing ends so in any case, and runs none of the hooks at exit.
        """
        if at_once and frame.f_code.co_filename.endswith(_CHILD_ENDS):
            self.recorder.state.enter(Phase.EXITED)
            return
        site = program_site(frame)
        if site is not None:
            self.recorder.beat.seen(site, leaves=True)
        error = sys.exc_info()[1]
        is_main = threading.current_thread() is threading.main_thread()
        if status and is_main and not at_once and isinstance(error, Exception):
            self._last_dump(error)

    def _hook(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, KeyboardInterrupt):
            self._last_dump(error)
        with contextlib.suppress(Exception):
            trace = without_recorder(error, trace)
        if self._next_hook is not None:
            self._next_hook(kind, error, trace)

    def _last_dump(self, error: BaseException | None) -> None:
        """The dump of the end: once, and never in the way of the job's own last words."""
        if self._dumped:
            return
        self._dumped = True
        state = self.recorder.state
        try:
            if error is not None:
                state.exception = described(error)
            reason = "exit-pending" if error is None else "exception"
            take(self.recorder, reason, incident=END)
        except Exception as problem:  # noqa: BLE001 - an error of ours must not reach the job
            state.failures.add("last dump", problem)

    def _exit(self) -> None:
        """At exit: an exception that a user's excepthook kept from us, or calls pending."""
        try:
            error = getattr(sys, "last_value", None)
            if error is not None and not isinstance(error, (KeyboardInterrupt, SystemExit)):
                self._last_dump(error)
            elif self._calls_pending():
                self._last_dump(None)
        except Exception as problem:  # noqa: BLE001 - an error of ours must not reach the job
            self.recorder.state.failures.add("exit", problem)
        self._on_exit()

    def _calls_pending(self) -> bool:
        """Whether calls are in flight, in our ring or in torch's."""
        if self.recorder.state.phase.name != "READY":
            return False
        if self.recorder.pending():
            return True
        state = self.recorder.state
        found = torchfr.recorders(state.worker_socket, state.hooked)
        return any(_unfinished(source) for source in found)


def _unfinished(source: torchfr.TorchRecorder) -> bool:
    """Whether torch's newest calls were enqueued and not completed.

    Counters first, they cost 10 µs. On Gloo they count sends too, which never complete there, so
    a difference is looked at in the entries.
    """
    if all(beat.last_completed >= beat.last_enqueued for beat in torchfr.counters(source)):
        return False
    content = source.dump(collectives=True, stacks=False, only_active=False)
    return any(not entry.get("retired", True) for entry in content.get("entries", []))


def without_recorder(
    error: BaseException, trace: TracebackType | None = None
) -> TracebackType | None:
    """An error's traceback without frames of the recorder: they are no part of the program.

    Also of what led to it. What the recorder wraps stands between a program and torch, where it has
    no compiled way; a reader of an error would look there first.
    """
    kept = _without_own(error.__traceback__ if trace is None else trace)
    error.__traceback__ = kept
    seen, todo = {id(error)}, [error.__cause__, error.__context__]
    while todo:
        before = todo.pop()
        if before is not None and id(before) not in seen:
            seen.add(id(before))
            before.__traceback__ = _without_own(before.__traceback__)
            todo += [before.__cause__, before.__context__]
    return kept


def _without_own(trace: TracebackType | None) -> TracebackType | None:
    first = _next_of_others(trace)
    at = first
    while at is not None:
        following = _next_of_others(at.tb_next)
        if following is not at.tb_next:
            at.tb_next = following
        at = following
    return first


def _next_of_others(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OWN):
        trace = trace.tb_next
    return trace


_OWN: Final = f"{Path(__file__).parent}{os.sep}"
"""Where the recorder lies."""


def described(error: BaseException) -> dict[str, object]:
    """An exception as it goes into dumps; frames innermost first, as torch writes them."""
    frames = [
        {"name": frame.name, "filename": frame.filename, "line": frame.lineno or 0}
        for frame in traceback.extract_tb(error.__traceback__)
    ]
    return {
        "type": type(error).__name__,
        "message": without_secrets(str(error)[:MAX_TEXT]),
        "frames": frames[::-1][:100],
    }


_CHILD_ENDS: Final = ("/multiprocessing/popen_fork.py", "/multiprocessing/forkserver.py")
"""Where the standard library ends a forked child, once its function has returned or raised."""

_watch: CrashWatch | None = None
"""The watch that keeps from where the program asks to end."""


def _noted(original: Callable[..., Any]) -> Callable[..., Any]:
    """A function that ends the process, or the thread; where it is called is kept before."""

    @functools.wraps(original)
    def leave(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever it takes
        if _watch is not None and wrap.current() is not None:  # None in a forked child
            with contextlib.suppress(Exception):
                at_once = original is _ENDINGS["_exit"]
                _watch.leaving(sys._getframe(1), args[0] if args else 0, at_once=at_once)
        return original(*args, **kwargs)

    return leave
