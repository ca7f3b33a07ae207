"""Looks out of one rank of a live job: answers from a side thread while the main thread hangs.

The interpreter imports this by its name before the job's script starts, because the lab puts its
directory on PYTHONPATH; so the script holds no word about being watched. It answers two questions
on a pair of pipes, one JSON line each: "state" (where the main thread stands in the script, whether
the recorder holds an unfinished call, which exception ended it) and "dump PATH" (writes the bytes
of the recorder). It dies with whoever watches, and does nothing where nobody does.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import traceback
from types import FrameType, TracebackType
from typing import Any

PIPES = "UNHANG_LAB_PIPES"
SCRIPT = "UNHANG_LAB_SCRIPT"
PR_SET_PDEATHSIG = 1


class Watch:
    """The side thread's view of this process."""

    def __init__(self, script: str) -> None:
        self.script = script
        self.raised = ""
        self.raised_at = (-1, -1)

    def answer(self, request: str) -> dict[str, Any]:
        """Answer one line."""
        word, _, argument = request.partition(" ")
        if word == "dump":
            return {"bytes": self.dump(argument)}
        line, step = self.raised_at if self.raised else self.place()
        return {"line": line, "step": step, "waits": self.waits(), "raised": self.raised}

    def place(self) -> tuple[int, int]:
        """Line of the script in which the main thread stands, and the step that it says; or -1."""
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        places = []
        while frame is not None:
            places.append((frame, frame.f_lineno))
            frame = frame.f_back
        return self.innermost(places)

    def innermost(self, places: list[tuple[FrameType, int]]) -> tuple[int, int]:
        """The script's innermost line among frames (innermost first), and its step; or -1."""
        ours = [(f, line) for f, line in places if f.f_code.co_filename == self.script]
        steps = [f.f_locals.get("step", -1) for f, _ in ours]
        return (ours[0][1] if ours else -1), max(steps, default=-1)

    def waits(self) -> bool:
        """Whether torch's recorder holds a call that was not retired."""
        recorder = _recorder()
        if recorder is None:
            return False
        entries = json.loads(recorder._dump_fr_trace_json(True, False)).get("entries", [])  # noqa: FBT003 - torch takes these by position
        return any(not entry["retired"] for entry in entries)

    def dump(self, path: str) -> int:
        """Write the recorder's bytes to `path`, whole or not at all; returns how many."""
        data = _recorded()
        part = f"{path}.part"
        with open(part, "wb") as file:  # noqa: PTH123 - as little as possible is imported here
            file.write(data)
        os.replace(part, path)  # noqa: PTH105 - same
        return len(data)

    def hold(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """Stay, as a rank does whose error is being handled: an exit would free its peers."""
        places = [(place, line) for place, line in traceback.walk_tb(trace)]
        self.raised_at = self.innermost(places[::-1])
        self.raised = f"{kind.__name__}: {error}"
        print(self.raised, file=sys.stderr, flush=True)  # noqa: T201 - what the interpreter prints
        threading.Event().wait()


def _recorder() -> Any:  # noqa: ANN401 - torch's module has no types
    """The module with the recorder, or None: not (wholly) imported yet, or too old to have it."""
    module = sys.modules.get("torch._C._distributed_c10d")
    return module if hasattr(module, "_dump_fr_trace_json") else None


def _recorded() -> bytes:
    """The dump: torch's own, or that of unhang's recorder where it is armed."""
    if ours := sys.modules.get("unhang.record.arm"):
        return bytes(ours.dump_bytes("gloo"))
    recorder = _recorder()
    return recorder._dump_fr_trace() if recorder else b""


def serve(requests: int, answers: int, watch: Watch) -> None:
    """Answer until the other end is closed, then end this process."""
    try:
        with os.fdopen(requests) as incoming, os.fdopen(answers, "w") as outgoing:
            for request in incoming:
                outgoing.write(json.dumps(replied(watch, request.rstrip("\n"))) + "\n")
                outgoing.flush()
    finally:  # also where the watcher went away before it read an answer
        os._exit(1)


def replied(watch: Watch, request: str) -> dict[str, Any]:
    """The answer to one line, or what went wrong with it."""
    try:
        return watch.answer(request)
    except Exception as error:  # noqa: BLE001 - the lab must hear of it, whatever it is
        return {"error": f"{type(error).__name__}: {error}"}


def die_with_parent() -> None:
    """Have the kernel end this process with the one that watches, even while stopped (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def start() -> None:
    """Begin to answer, if the lab has started this process."""
    pipes = os.environ.pop(PIPES, "")
    if not pipes:
        return
    die_with_parent()
    watch = Watch(os.environ[SCRIPT])
    sys.excepthook = watch.hold
    requests, answers = (int(number) for number in pipes.split(","))
    for number in (requests, answers):
        os.set_inheritable(number, False)  # noqa: FBT003 - positional only
    threading.Thread(target=serve, args=(requests, answers, watch), daemon=True).start()


start()
