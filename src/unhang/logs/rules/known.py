"""The rules that code asks for by name: what it does with them, no row says."""

from __future__ import annotations

from typing import Final

from unhang.logs.rules import RULES

_NAMED = {rule.slug: rule for rule in RULES}

CHILD_FAILED: Final = _NAMED["child-failed"]
ELASTIC_BLAMES: Final = _NAMED["elastic-blames"]
ENDED_BY_SIGNAL: Final = _NAMED["ended-by-signal"]
KILLED: Final = _NAMED["killed-from-outside"]
LOOPBACK_REFUSED: Final = _NAMED["gloo-loopback"]
PEER_REFUSED: Final = _NAMED["gloo-refused"]
RAS_DEAD: Final = _NAMED["ras-dead"]
RAS_MISMATCH: Final = _NAMED["ras-mismatch"]
REFUSED: Final = _NAMED["connect-refused"]
SERVING_STALLED: Final = _NAMED["serving-stalled"]
STANDING: Final = tuple(
    _NAMED[slug]
    for slug in (
        "collective-timeout", "dump-signal-observed", "horovod-stalled", "nccl-call-timeout",
        "watchdog-stuck", "workers-slow-to-answer",
    )
)  # fmt: skip
"""Of lines by which a process tells that it, or what it waits for, stands still now."""
TAKES_LOOPBACK: Final = _NAMED["gloo-takes-loopback"]
TAKES_VIRTUAL: Final = _NAMED["virtual-interface-chosen"]
TIMED_OUT: Final = _NAMED["collective-timeout"]
UNANSWERED: Final = _NAMED["socket-connection-timeout"]
UNEXPLAINED_ERROR: Final = _NAMED["unexplained-error"]
UNHANDLED_EXCEPTION: Final = _NAMED["unhandled-exception"]
WORKER_DIED: Final = _NAMED["worker-died"]
