"""What launchers were told, by their command lines: how many nodes, which of them this is.

A launcher that waits for other nodes has started no rank yet, so it is all that there is to see.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from unhang.model import Frame, ProcessSample
from unhang.stacks.meaning import main_thread
from unhang.stacks.tree.gathering import latest

_MEETING = ("--rdzv-endpoint", "--rdzv-id", "--master-addr", "--master-port")
_MOST_NODES = 1 << 16


class LauncherLook(Struct, frozen=True):
    """One launcher.

    Attributes:
        nodes: How many nodes there must be at least; 0 where its command does not say.
        node_rank: Which of them it is; -1 where that is left to the rendezvous.
        ranks_each: Ranks that each node starts; 0 where its command does not say.
        meeting: Where the nodes meet, as it says.
        frames: Where its main thread stands, innermost first.
    """

    host: str
    pid: int
    nodes: int
    node_rank: int
    ranks_each: int
    meeting: str
    frames: tuple[Frame, ...] = ()


def launchers_of(samples: Iterable[ProcessSample]) -> tuple[LauncherLook, ...]:
    """The launchers among samples, as their last looks show them, by host and process."""
    found = [_look(looks[-1]) for looks in latest([s for s in samples if s.role == "launcher"])]
    return tuple(sorted(found, key=lambda look: (look.host, look.pid)))


def _look(sample: ProcessSample) -> LauncherLook:
    told = _options(sample.command)
    thread = main_thread(sample)
    return LauncherLook(
        host=sample.host,
        pid=sample.pid,
        nodes=_number(told.get("--nnodes", "").partition(":")[0], 0),
        node_rank=_number(told.get("--node-rank", ""), -1),
        ranks_each=_number(told.get("--nproc-per-node", ""), 0),
        meeting=" ".join(told[name] for name in _MEETING if name in told),
        frames=thread.frames if thread else (),
    )


def _options(command: str) -> dict[str, str]:
    """Options and their values, in one spelling, of the launcher itself."""
    words, found = command.split(), dict[str, str]()
    for number, word in enumerate(words):
        name, equals, value = word.partition("=")
        following = words[number + 1] if number + 1 < len(words) else ""
        found.setdefault(name.replace("_", "-"), value if equals else following)
    return found


def _number(text: str, default: int) -> int:
    known = text.isascii() and text.isdigit() and int(text) <= _MOST_NODES
    return int(text) if known else default
