"""Where a program is, by its own lines, and from where it asks to end."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from multiprocessing import popen_fork
from pathlib import Path
from types import FrameType

import pytest

from unhang.record import crash
from unhang.record.calls import wrap
from unhang.record.calls.recorder import Recorder
from unhang.record.calls.ring import Ring
from unhang.record.calls.sites import program_site
from unhang.record.contact.beat import Beat
from unhang.record.contact.beatlayout import Phase
from unhang.record.contact.heartbeat import read_heartbeat
from unhang.record.process import ArmedProcess
from unhang.record.settings import Settings


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """A recorder with a heartbeat in a file; what ends processes is put back afterwards."""
    for owner, name in ((sys, "exit"), (os, "_exit")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    monkeypatch.setattr(crash, "_ENDINGS", {})
    beat = Beat(tmp_path / "1.beat", pid=os.getpid(), start_ticks=1)
    recorder = Recorder(ArmedProcess(Settings(), os.getpid(), beat, Ring(4)))
    wrap.attach(recorder)
    yield recorder
    wrap.detach()


def test_where_a_program_asks_to_end_is_kept(recorder: Recorder, tmp_path: Path) -> None:
    """Neither sys.exit nor os._exit tells anybody else; in a forked child nothing is written."""
    watch = crash.CrashWatch(recorder, lambda: None)
    watch.note_exits()
    watch.note_exits()
    with pytest.raises(SystemExit) as caught:
        sys.exit(3)
    line = sys._getframe().f_lineno - 1
    watch.release()
    beat = read_heartbeat(tmp_path / "1.beat")
    assert beat is not None
    assert (beat.seen_file, beat.seen_line, caught.value.code) == (__file__, line, 3)
    wrap.detach()
    with pytest.raises(SystemExit):
        sys.exit()
    assert read_heartbeat(tmp_path / "1.beat") == beat


def test_a_forked_child_of_multiprocessing_comes_to_its_end(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standard library ends it by os._exit: that is no leaving amid its program."""
    monkeypatch.setattr(os, "_exit", lambda status: None)  # noqa: ARG005 - it would end us
    crash.CrashWatch(recorder, lambda: None).note_exits()
    exec(compile("os._exit(0)", "/home/user/train.py", "exec"), {"os": os})  # noqa: S102 - ours
    assert recorder.state.phase is Phase.IMPORTED
    exec(compile("os._exit(0)", popen_fork.__file__, "exec"), {"os": os})  # noqa: S102 - ours
    assert recorder.state.phase is Phase.EXITED


def test_an_error_that_is_handled_by_leaving_is_kept(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torch.multiprocessing.spawn does it: no excepthook is called then."""
    taken: list[str] = []
    monkeypatch.setattr(crash, "take", lambda *_, **__: taken.append("dump"))
    watch = crash.CrashWatch(recorder, lambda: None)
    watch.note_exits()

    def deal_with_it(status: int) -> None:
        try:
            int("bad batch")
        except ValueError:
            sys.exit(status)

    for status in (0, 1):
        with pytest.raises(SystemExit):
            deal_with_it(status)
        assert len(taken) == status, "who leaves with 0 has dealt with it"
    watch.release()
    assert recorder.state.exception is not None
    assert "bad batch" in str(recorder.state.exception["message"])


def test_the_thread_that_runs_the_program_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the main thread shows no line of the user's, the one thread that does."""
    ready, go = threading.Event(), threading.Event()

    def program() -> None:
        ready.set()
        go.wait()

    waits, runs = threading.Thread(target=go.wait), threading.Thread(target=program)
    waits.start()
    runs.start()
    try:
        ready.wait()
        frames = sys._current_frames()
        library, own = frames[waits.ident or 0], frames[runs.ident or 0]
        main = threading.main_thread().ident or 0
        seen: dict[int, FrameType] = {main: library, 1: own}
        monkeypatch.setattr(sys, "_current_frames", lambda: dict(seen))
        site = program_site()
        assert site is not None
        assert site.f_code is program.__code__
        seen[2] = own
        assert program_site() is None, "nobody knows which of two"
    finally:
        go.set()
        waits.join()
        runs.join()


def _through_the_recorder(error: BaseException) -> None:
    """Raise an error below a frame that seems to be one of the recorder's."""
    place = Path(crash.__file__).with_name("calls") / "wrap.py"
    code = compile("def wrapper(inner):\n    inner()", str(place), "exec")
    made: dict[str, Callable[[Callable[[], object]], object]] = {}
    exec(code, made)  # type: ignore[arg-type]  # noqa: S102 - ours

    def fail() -> None:
        raise error

    made["wrapper"](fail)


def test_an_error_s_traceback_shows_no_frame_of_the_recorder(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its own nor that of what led to it; the program's and torch's frames stay."""
    shown: list[list[str]] = []
    monkeypatch.setattr(
        sys,
        "excepthook",
        lambda _, error, trace: shown.extend(
            [frame.name for frame in traceback.extract_tb(each)]
            for each in (trace, error.__context__.__traceback__)
        ),
    )
    monkeypatch.setattr(crash, "take", lambda *_, **__: None)
    watch = crash.CrashWatch(recorder, lambda: None)
    watch.chain_excepthook()
    try:
        try:
            _through_the_recorder(ValueError("first"))
        except ValueError:
            _through_the_recorder(RuntimeError("then"))
    except RuntimeError as error:
        sys.excepthook(type(error), error, error.__traceback__)
    watch.release()
    name = "test_an_error_s_traceback_shows_no_frame_of_the_recorder"
    assert shown == [[name, "_through_the_recorder", "fail"]] * 2


def test_a_second_group_does_not_make_hooks_call_each_other(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch puts a hook before the one in place in each init_process_group."""
    called: list[str] = []
    monkeypatch.setattr(sys, "excepthook", lambda *_: called.append("python"))
    monkeypatch.setattr(crash, "take", lambda *_, **__: None)
    watch = crash.CrashWatch(recorder, lambda: None)
    for number in (1, 2):
        before = sys.excepthook

        def of_torch(*what: object, before: object = before, number: int = number) -> None:
            called.append(f"torch {number}")
            before(*what)  # type: ignore[operator]  # a hook

        monkeypatch.setattr(sys, "excepthook", of_torch)
        watch.chain_excepthook()
    sys.excepthook(ValueError, ValueError("bad"), None)
    watch.release()
    assert called == ["torch 2", "torch 1", "python"]
