"""Runs launches: many at once, each bounded in time, their lines sorted by node as they come.

A launch that dies, hangs or prints rubbish costs its own nodes only. What a node has sent whole is
kept, whatever becomes of the command that brought it.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from unhang.collect.launchers import Launch, Launcher, Program
from unhang.collect.parcel import Incoming, ParcelError, Spool, read_line, safe_node

_LONGEST_LINE = 16 << 10
_KEPT_ERRORS = 8 << 10
_GRACE_S = 3.0
_STRANGERS = 8
"""Names that were not expected: a node may call itself otherwise than its launcher does."""


@dataclass(slots=True)
class Delivery:
    """What one launch brought home.

    Attributes:
        parcels: Files of whole parcels by node, as the nodes call themselves.
        broken: Why a node's parcel is not whole.
        error: What went wrong with the command itself, in its own words; "" if nothing.
        passed_over: Lines under further names, which were too many to take.
        again: Names under which more came than one answer.
    """

    parcels: dict[str, Path] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    error: str = ""
    passed_over: int = 0
    again: set[str] = field(default_factory=set)


def run_launches(
    launcher: Launcher,
    batches: Sequence[tuple[str, ...]],
    run: str,
    program_of: Callable[[tuple[str, ...], str], Program],
    timeout_s: float,
    *,
    at_once: int,
    within: Path | None = None,
) -> Iterator[tuple[tuple[str, ...], Delivery]]:
    """Run a program on nodes, in batches; yields each with what it brought as soon as it ends.

    What came lies in folders, one a batch, that are gone when all have been taken.

    Args:
        launcher: How to reach them.
        batches: Nodes that share a command.
        run: Name of the run. Lines carry it with a number that only their own launch knows, so that
            no node can answer in another launch.
        program_of: Makes what a batch runs, under such a name.
        timeout_s: For each command.
        at_once: How many of them run at the same time.
        within: Where the folders are, else where temporary ones are.
    """
    with TemporaryDirectory(dir=within, prefix=".incoming-") as scratch:

        def one(number: int) -> Delivery:
            folder = Path(scratch, str(number))
            folder.mkdir()
            name = f"{run[:40]}-{secrets.token_hex(8)}"
            launch = launcher.launch(batches[number], program_of(batches[number], name))
            return run_launch(launch, name, folder, timeout_s)

        with ThreadPoolExecutor(max(1, min(at_once, len(batches)))) as pool:
            jobs = {pool.submit(one, number): number for number in range(len(batches))}
            for job in as_completed(jobs):
                yield batches[jobs[job]], job.result()


def run_launch(launch: Launch, run: str, folder: Path, timeout_s: float) -> Delivery:
    """Run one command and take in what its nodes send.

    Args:
        launch: What to run.
        run: Name of the collecting run, which every line carries.
        folder: Where parcels are kept while they come in.
        timeout_s: For the whole command.
    """
    delivery = Delivery()
    try:
        child = subprocess.Popen(  # noqa: S603 - a launcher's command, a list of words
            launch.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        delivery.error = f"{launch.command[0]} cannot be started: {error.strerror}"
        return delivery
    stream = _Lines(child, timeout_s)
    feeder = threading.Thread(target=_feed, args=(child, launch.stdin), daemon=True)
    errors = _Tail(child.stderr)
    feeder.start()
    try:
        _Intake(launch.nodes, folder, delivery).take(stream, run)
    finally:
        _end(child, polite=stream.late)
    words = errors.last_line()
    if stream.late:
        delivery.error = f"no answer within {timeout_s:g} s" + (f" ({words})" if words else "")
    elif child.returncode:
        delivery.error = words or f"{launch.command[0]} ended with exit code {child.returncode}"
    elif not delivery.parcels:
        delivery.error = words or f"{launch.command[0]} ended without an answer"
    return delivery


class _Intake:
    """Sorts the lines of one launch by node; what a node calls itself names no file."""

    def __init__(self, expected: Sequence[str], folder: Path, delivery: Delivery) -> None:
        self.expected = {safe_node(node) for node in expected}
        self.without_domain = {_without_domain(node) for node in self.expected}
        self.strangers = len(expected) + _STRANGERS
        self.folder, self.delivery = folder, delivery
        self.incoming: dict[str, Incoming] = {}
        self.paths: dict[str, Path] = {}

    def take(self, lines: Iterable[bytes], run: str) -> None:
        """Take in all lines that come."""
        try:
            for raw in lines:
                words = read_line(raw.decode("utf-8", "replace"), run)
                if words is not None and self._wants(words[0]):
                    self._add(*words)
        finally:
            for node in list(self.incoming):
                self._spoil(node, "it ended before all answers came")

    def _wants(self, node: str) -> bool:
        """Whether a line of this node is taken: only so many names are."""
        if node in self.incoming:
            return True
        if node in self.paths:  # it is whole, or broken
            self.delivery.again.add(node)
            return False
        if not self._is_expected(node):
            if self.strangers <= 0:
                self.delivery.passed_over += 1
                return False
            self.strangers -= 1
        self.paths[node] = path = self.folder / f"{len(self.paths)}.parcel"
        self.incoming[node] = Incoming(Spool(path))
        return True

    def _is_expected(self, node: str) -> bool:
        if node in self.expected:
            return True
        short = _without_domain(node)
        known = short in self.without_domain
        self.without_domain.discard(short)  # for one name only
        return known

    def _add(self, node: str, number: str, first: str, second: str) -> None:
        parcel = self.incoming[node]
        try:
            parcel.add(number, first, second)
        except ParcelError as error:
            self._spoil(node, str(error))
            return
        if parcel.whole:
            self.incoming.pop(node).file.close()
            self.delivery.parcels[node] = self.paths[node]

    def _spoil(self, node: str, why: str) -> None:
        del self.incoming[node]
        self.delivery.broken[node] = why
        self.paths[node].unlink(missing_ok=True)


def _without_domain(node: str) -> str:
    return node.partition(".")[0]


def _feed(child: subprocess.Popen[bytes], data: bytes) -> None:
    with suppress(OSError):
        if child.stdin is not None:
            child.stdin.write(data)
            child.stdin.close()


class _Lines:
    """The lines of a command until it, or its time, is over.

    Its end is not that of its output: what it started may hold that for ever, or send a byte now
    and then. So a clock decides, and a command that has ended has a moment for what is under way.

    Attributes:
        late: The time was over first.
    """

    def __init__(self, child: subprocess.Popen[bytes], timeout_s: float) -> None:
        self.late = False
        self._child, self._until = child, time.monotonic() + timeout_s

    def __iter__(self) -> Iterator[bytes]:
        kept, ended = b"", 0.0
        while not self.late:
            piece = self._piece()
            if piece == b"":
                break
            now = time.monotonic()
            ended = ended or (now if _has_ended(self._child) else 0.0)
            if ended and now - ended > _GRACE_S:
                break
            *whole, kept = (kept + (piece or b"")).split(b"\n")
            yield from whole
            if len(kept) > _LONGEST_LINE:
                yield kept
                kept = b""
            self.late = now > self._until
        yield kept

    def _piece(self) -> bytes | None:
        """What comes next, b"" at the end; None where nothing comes for a moment."""
        if self._child.stdout is None:
            return b""
        ready = select.poll()
        ready.register(self._child.stdout, select.POLLIN)
        return os.read(self._child.stdout.fileno(), 1 << 16) if ready.poll(200) else None


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Whether a command has ended; not waited for, so that its group keeps its number."""
    how = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, child.pid, how) is not None


def _end(child: subprocess.Popen[bytes], *, polite: bool) -> None:
    """End a command and all that is left of it; srun, asked first, cancels its step."""
    if polite:
        _signal_group(child, signal.SIGTERM)
        until = time.monotonic() + _GRACE_S
        while not _has_ended(child) and time.monotonic() < until:
            time.sleep(0.05)
    _signal_group(child, signal.SIGKILL)
    child.wait()
    if child.stdout is not None:
        child.stdout.close()


def _signal_group(child: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


class _Tail:
    """Reads a stream to its end in a thread and keeps the last of it."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        self._kept = b""
        self._stream = stream
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while self._stream is not None and (piece := self._stream.read1(4_096)):  # type: ignore[attr-defined]  # a pipe is buffered
            self._kept = (self._kept + piece)[-_KEPT_ERRORS:]

    def last_line(self) -> str:
        """The last line that says something."""
        self._thread.join(1.0)
        lines = self._kept.decode("utf-8", "replace").splitlines()
        said = [line.strip() for line in lines if line.strip()]
        return said[-1][:300] if said else ""
