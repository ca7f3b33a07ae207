"""Ask a vendor's program on a node: bounded in time and size, whatever the program does.

A program that talks to a GPU may hang in the driver, where not even SIGKILL ends it: then it is
left behind and what it had said so far is not used. Besides: whether all processes of the machine
are seen, without which no user may be blamed for what no process owns.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

MAX_SAID = 8 << 20
MAX_TRIES = 16
GRACE_S = 2.0


class NoAnswerError(Exception):
    """A program gave no answer; the text says why."""


def program(name: str, *folders: str) -> str:
    """Path of a program by PATH, else in these folders; "" where there is none."""
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))
    return found or ""


def said_by(words: list[str], until: float) -> str:
    """Standard output of a program that ends well before `until` (time.monotonic).

    Raises:
        NoAnswerError: It cannot be started, takes too long, says too much or fails without a word.
    """
    name = Path(words[0]).name + " " + words[1]
    try:
        child = subprocess.Popen(  # noqa: S603 - a program of this node, constant words
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise NoAnswerError(f"{name} cannot be started: {error.strerror}") from error
    try:
        output, complaint = _read(child, until, name)
        with suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, until - time.monotonic()))
        if not output.strip():
            last = complaint.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise NoAnswerError(f"{name} printed nothing (exit code {child.poll()}) {last[:200]}")
        return output.decode("utf-8", "replace")
    finally:
        _end(child)


def _read(child: subprocess.Popen[bytes], until: float, name: str) -> tuple[bytes, bytes]:
    said = {"out": bytearray(), "err": bytearray()}
    with selectors.DefaultSelector() as selector:
        for side, pipe in (("out", child.stdout), ("err", child.stderr)):
            if pipe is not None:
                selector.register(pipe, selectors.EVENT_READ, side)
        while selector.get_map():
            left = until - time.monotonic()
            ready = selector.select(max(0.0, left))
            if not ready or left <= 0:
                raise NoAnswerError(f"{name} did not finish in time")
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fileobj)
                said[key.data] += data
                if len(said[key.data]) > MAX_SAID:
                    raise NoAnswerError(f"{name} printed more than {MAX_SAID >> 20} MB")
    return bytes(said["out"]), bytes(said["err"])


def _end(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):  # in the driver: nothing can end it
        child.wait(GRACE_S)
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()


def documents(text: str) -> list[Any]:
    """All JSON documents of an output; amd-smi may print warnings before and several in a row."""
    found = []
    decoder = json.JSONDecoder()
    at = tries = 0
    while tries < MAX_TRIES:
        starts = [i for i in (text.find("{", at), text.find("[", at)) if i >= 0]
        if not starts:
            break
        tries += 1
        try:
            value, at = decoder.raw_decode(text, min(starts))
        except (ValueError, RecursionError):
            at = text.find("\n", min(starts)) + 1 or len(text)
        else:
            found.append(value)
    return found


def sees_all_processes() -> bool:
    """Whether the processes seen here are all of the machine's.

    The kernel gives its first PID namespace a fixed number (include/linux/proc_ns.h).
    """
    with suppress(OSError):
        return Path("/proc/self/ns/pid").stat().st_ino == 0xEFFFFFFC  # noqa: PLR2004 - that number
    return False
