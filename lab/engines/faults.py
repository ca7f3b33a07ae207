"""The faults: what is started, where it stands still, and what may be said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class EngineFault:
    """One way in which an engine, or a trainer with a server, stands still.

    Attributes:
        name: For the command line.
        truth: What is wrong, a sentence.
        settings: Where and how the harness stands still.
        parts: What is started: "front", "sglang", "trainer".
        culprits: Ranks that may be named.
        must: Ranks that should be.
        says: One of these stands in the summary.
        statuses: All that are right.
    """

    name: str
    truth: str
    settings: dict[str, object]
    parts: tuple[str, ...] = ("front",)
    culprits: tuple[int, ...] = ()
    must: tuple[int, ...] = ()
    says: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ("problem", "insufficient")

    def wrong(self, report: Mapping[str, Any]) -> str:
        """What a report has wrong, in a word or two; "" where it is right."""
        named = {rank for finding in report["findings"] for rank in finding["culprits"]}
        if named - {*self.culprits}:
            return "wrong rank"
        if report["status"] not in self.statuses:
            return str(report["status"])
        if {*self.must} - named:
            return "rank lost"
        told = not self.says or any(words in report["summary"] for words in self.says)
        return "" if told else "unsaid"


_BOTH = ("front", "trainer")

FAULTS: dict[str, EngineFault] = {
    fault.name: fault
    for fault in (
        EngineFault(
            "core-stuck",
            "The engine core stands in its scheduler; its workers wait for orders.",
            {"at": "schedule"},
            says=("the engine (process",),
        ),
        EngineFault(
            "worker-stuck",
            "Worker 1 stands in a step, worker 0 in the collective of that step.",
            {"at": "step", "number": 1},
            culprits=(1,),
            must=(1,),
        ),
        EngineFault(
            "worker-dead",
            "Worker 1 was killed in a step; worker 0 and the engine wait for it.",
            {"at": "step", "number": 1, "dies": True},
            culprits=(1,),
        ),
        EngineFault(
            "lost-order",
            "Worker 1 got no order: it idles while worker 0 waits for it in a collective.",
            {"at": "order", "number": 1},
            culprits=(1,),
        ),
        EngineFault(
            "no-reader",
            "Worker 1 stands in a step, and the engine in the full queue of its orders.",
            {"at": "no-reader", "number": 1},
            culprits=(1,),
            must=(1,),
        ),
        EngineFault(
            "scheduler-stuck",
            "SGLang's scheduler of rank 0 stands in its choice of a batch.",
            {"at": "batch", "number": 0},
            ("sglang",),
            culprits=(0,),
            must=(0,),
        ),
        EngineFault(
            "front-alone",
            "The engine and its workers were killed; the HTTP front goes on answering.",
            {"at": "schedule", "dies": True},
        ),
        EngineFault(
            "idle",
            "Nothing is wrong: the engine waits for requests.",
            {"at": "idle"},
            statuses=("healthy", "insufficient"),
        ),
        EngineFault(
            "weight-sync",
            "Trainer rank 0 waits for the server's workers, whom no one told of the new weights.",
            {"at": "sync"},
            _BOTH,
            culprits=(0,),
        ),
        EngineFault(
            "server-dead",
            "The engine was killed; trainer rank 0 waits for the server's answer.",
            {"at": "schedule", "dies": True, "mute": True},
            _BOTH,
            culprits=(0,),
        ),
        EngineFault(
            "trainer-dead",
            "Trainer rank 1 was killed; the server idles and is well.",
            {"at": "trainer"},
            _BOTH,
            culprits=(1,),
        ),
        EngineFault(
            "time-out",
            "A call timed out, and the engine ended; why its worker was late is not told.",
            {"at": "time-out"},
        ),
    )
}
