"""One call of one rank: told to the referee when it is made, filled in when it is waited for."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, TypeAlias

import torch.distributed as dist

from unhang.rehearse.inside.payloads import Sender, Tensor, fill, keep, plain
from unhang.rehearse.inside.readings import Readings
from unhang.rehearse.matching.talking import Foreign, RankLine

Frames: TypeAlias = list[tuple[str, str, int]]

_OURS: Final = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - compared as text
_MOST_FRAMES: Final = 64


def frames() -> Frames:
    """The Python stack that makes a call, innermost first, without our own part of it."""
    found: Frames = []
    frame = sys._getframe(1)
    while frame is not None and len(found) < _MOST_FRAMES:
        code = frame.f_code
        if not code.co_filename.startswith(_OURS) and "runpy" not in code.co_filename:
            found.append((code.co_name, code.co_filename, frame.f_lineno))
        frame = frame.f_back  # type: ignore[assignment] # None at the end
    return found


class Desk:
    """What all groups of one rank share: the line to the referee, stacks, and where values lie."""

    def __init__(self, client: RankLine, folder: str) -> None:
        self.client, self.folder = client, folder
        self.number = self.batches = 0
        self._local = threading.local()
        self.works: list[RehearsedWork] = []
        self.stores: list[Any] = []
        self.readings = Readings(client)
        self.is_bound = False  # `init_process_group` was given the rank's device

    def place(self) -> dict[str, object]:
        """The stack of this call: its number, and the frames the first time."""
        local, stack = self._local, frames()  # each thread has a connection, which knows its own
        if getattr(local, "process", 0) != os.getpid():
            local.stacks, local.process = {}, os.getpid()
        key = tuple(stack)
        if key in local.stacks:
            return {"stack": local.stacks[key]}
        local.stacks[key] = len(local.stacks)
        return {"stack": local.stacks[key], "frames": stack}

    def make(
        self, group: Foreign, kind: str, op: str, inputs: Sequence[Tensor],
        outputs: Sequence[Tensor], **more: Foreign,
    ) -> RehearsedWork:  # fmt: skip
        """Make a call: keep its values, tell the referee, wait for nothing."""
        number = self.number
        self.number += 1
        with plain():
            carried = keep(self.folder, self.client.rank, number, inputs)
            call = {
                "group": more.pop("key", group.key), "kind": kind, "op": op, "number": number,
                "root": -1, "peer": -1, "tag": 0, "reduction": "", "sync": True, "gives": [],
                "takes": [], "carried": carried, "kept": len(inputs), "batch": -1,
                "inputs": [list(t.shape) for t in inputs], "dtypes": [_dtype(t) for t in inputs],
                "outputs": [list(t.shape) for t in outputs],
                "output_dtypes": [_dtype(t) for t in outputs], **more,
            }  # fmt: skip
        self.client.tell("call", **call, **self.place())
        work = RehearsedWork(self, call, group.rank(), list(outputs))
        self.works.append(work)  # C++ may ask it after Python has let it go
        return work


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


class RehearsedWork(dist._Work):  # type: ignore[misc] # torch is not typed
    """A call on its way. It ends when the referee says so, and its tensors are filled then."""

    def __init__(
        self, desk: Desk, call: dict[str, Any], me: int, outputs: list[Tensor],
        parts: Sequence[RehearsedWork] = (),
    ) -> None:  # fmt: skip
        super().__init__()
        self.desk, self.call, self.me, self.outputs = desk, call, me, outputs
        self.parts = parts
        self.done = False
        self.source = -1

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until it may end, and take what it received."""
        del timeout
        for part in self.parts:
            part.wait()
        if not self.done and not self.parts:
            self._take(
                self.desk.client.ask("wait", number=self.call["number"], **self.desk.place())
            )
        self.done = True
        return True

    def is_completed(self) -> bool:
        """Whether it may end; what it received is taken then."""
        if self.parts:
            return all(part.is_completed() for part in self.parts)
        if not self.done:
            answer = self.desk.client.ask("test", number=self.call["number"], **self.desk.place())
            if answer["done"]:
                self._take(answer)
                self.done = True
        return self.done

    def _take(self, answer: dict[str, Any]) -> None:
        senders = [
            each and Sender(each[0], each[1], tuple(each[2]), each[3]) for each in answer["met"]
        ]
        self.source = answer["source"]
        with plain():
            if not fill(self.desk.folder, self.call, self.me, senders, self.outputs):
                self.desk.client.tell("unreal", number=self.call["number"])
                self.desk.readings.is_unreal = True
            if answer["stands_in"]:
                self.desk.readings.is_unreal = True
        self.desk.client.tell("took", number=self.call["number"])

    def is_success(self) -> bool:
        """No call of a rehearsal fails."""
        return self.is_completed()

    def exception(self) -> None:
        """No call of a rehearsal fails."""

    def synchronize(self) -> None:
        """As `wait`."""
        self.wait()

    def block_current_stream(self) -> None:
        """As `wait`: there are no streams."""
        self.wait()

    def result(self) -> list[Tensor]:
        """What it received."""
        return self.outputs

    def source_rank(self) -> int:
        """The sender of what was received from any rank, as rank of the group."""
        return self.source

    _source_rank = source_rank

    def get_future(self) -> Foreign:
        """Its outputs, waited for here: C++ would wait where no other thread can end it."""
        import torch

        self.wait()
        future: Foreign = torch.futures.Future()
        future.set_result(self.outputs)
        return future

    getFuture = get_future  # noqa: N815 - as C++ asks for it
