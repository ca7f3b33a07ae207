"""Clog's text as a dump: the calls that torchcomms' ClogHook logs, a file for each rank.

Lines are fields between "|" (version 1, by its sources at 59426ba and the page beside them; no file
of a real job was at hand). A signature is numbered once, and events name its number:

    V|1|base_timestamp=1795000000.000
    new_comm|comm=main|rank=0|world_size=4
    C1|sig|all_reduce|in_count=64|out_count=64|dtype=f32|red_op=sum|async_op=f|comm=main
    C1|Q|work_id=1|+0.005          issued: the only event that is always logged
    C1|S|+0.006   C1|E|+0.007      the device began and finished it; C1|W: the host waited for it
    G7|C1|Q|…     G7|R1|C1|S|…     captured in a graph, and replayed

Nothing says when the file was read, so the age of a call is unknown.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Final

from unhang.bounds import UNPROVEN_RANKS, is_rank
from unhang.case import AT_ISSUE, BY_CLOG, BY_TORCHCOMMS
from unhang.ingest.columns.decoded import Decoded, LostDumpError, Origin
from unhang.ingest.columns.dictionaries import Dictionaries
from unhang.ingest.columns.normalise import normalise
from unhang.ingest.columns.values import as_int
from unhang.ingest.discover.sniff import CLOG_HEAD
from unhang.wording import count_of

_MOST_CALLS: Final = 50_000
_MOST_NAMED: Final = 100_000
"""Communicators, or signatures, that are remembered."""
_MOST_IN_FLIGHT: Final = 1_000
_DEEPEST: Final = 16
"""Splits of splits that are followed."""
_BACKEND: Final = "torchcomms"
_EXCHANGES: Final = {"send": "->", "recv": "<-"}
_P2P: Final = frozenset({*_EXCHANGES, "batch_op_issue"})
_DTYPES: Final = {
    "f32": "Float", "f64": "Double", "f16": "Half", "bf16": "BFloat16", "i32": "Int", "i64": "Long",
    "i16": "Short", "i8": "Char", "u8": "Byte", "bool": "Bool", "fp8e4m3": "Float8_e4m3fn",
    "fp8e5m2": "Float8_e5m2",
}  # fmt: skip
"""Its names of dtypes, and torch's; what it calls "other" is left out."""


@dataclass(slots=True)
class _Comm:
    """A communicator: this process' rank in it, how many it has, its collectives so far.

    Attributes:
        of_parent: Its members, as ranks of the communicator that it was split off.
        is_replayed: Graphs call on it: their replays have no place among its calls.
    """

    rank: int = -1
    size: int = 0
    calls: int = 0
    parent: _Comm | None = None
    of_parent: tuple[int, ...] = ()
    is_replayed: bool = False

    def members(self, world: _Comm) -> tuple[int, ...]:
        """Ranks of the job, where the whole job is this communicator or what it was split off."""
        ranks, at = tuple(range(self.size)), self
        for _ in range(_DEEPEST):
            if at is world:
                return ranks
            if at.parent is None:
                break
            ranks = tuple(at.of_parent[rank] for rank in ranks)
            at = at.parent
        return ()


@dataclass(slots=True)
class _Log:
    """What has been read of one file.

    Attributes:
        entries: The newest calls.
        ahead: By event and signature: the calls that it has not come to yet, oldest first.
        issued: Calls in all.
    """

    base_ns: int
    comms: dict[str, _Comm] = field(default_factory=dict)
    signatures: dict[str, dict[str, Any]] = field(default_factory=dict)
    entries: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_MOST_CALLS))
    ahead: dict[tuple[str, str], deque[int]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=_MOST_IN_FLIGHT))
    )
    issued: int = 0
    tells_ends: bool = False
    strange: int = 0

    def take(self, line: str) -> None:
        """Read one line; the last one may be cut, and later versions may have others."""
        kind, *fields = line.split("|")
        if kind == "new_comm":
            self._comm_made(_named(fields))
        elif kind == "split":
            self._comm_split(_named(fields))
        elif kind[:1] == "C" and fields:
            self._of_call(kind, fields)
        elif kind[:1] == "G":
            self._of_graph(fields)
        elif kind not in ("V", "WARN"):
            self.strange += 1

    def _comm_made(self, told: dict[str, str]) -> None:
        rank, size = as_int(told.get("rank")), as_int(told.get("world_size"))
        if is_rank(rank) and rank < size <= UNPROVEN_RANKS and len(self.comms) < _MOST_NAMED:
            comm = self.comms.setdefault(told.get("comm", ""), _Comm())
            comm.rank, comm.size = rank, size

    def _comm_split(self, told: dict[str, str]) -> None:
        """A child's ranks are those of its parent."""
        ranks = tuple(as_int(each) for each in told.get("ranks", "").split(","))
        parent = self.comms.get(told.get("parent", ""))
        name = told.get("child", "")
        if parent is None or parent.rank not in ranks or name in self.comms:
            return
        if all(0 <= rank < parent.size for rank in ranks) and len(self.comms) < _MOST_NAMED:
            self.comms[name] = _Comm(
                ranks.index(parent.rank), len(ranks), parent=parent, of_parent=ranks
            )

    def _of_call(self, number: str, fields: list[str]) -> None:
        event = fields[0]
        time_ns = self.base_ns + _ns(fields[-1].removeprefix("+"))
        if event == "sig" and len(self.signatures) < _MOST_NAMED:
            self.signatures[number] = _signature(fields[1:])
        elif event == "Q":
            self._issued(number, time_ns)
        elif event == "S":
            self.tells_ends = True  # the two are logged together, or neither is
            self._next(event, number).update(state="started", time_discovered_started_ns=time_ns)
        elif event == "E":
            ended = {"state": "completed", "time_discovered_completed_ns": time_ns, "retired": True}
            self._next(event, number).update(ended)

    def _next(self, event: str, number: str) -> dict[str, Any]:
        """The oldest call of a signature that an event has not come to: they end in order."""
        ahead = self.ahead[event, number]
        place = ahead.popleft() - (self.issued - len(self.entries)) if ahead else -1
        return self.entries[place] if place >= 0 else {}

    def _issued(self, number: str, time_ns: int) -> None:
        shape = self.signatures.get(number)
        if shape is None:
            self.strange += 1
            return
        comm = self.comms.setdefault(shape["comm"], _Comm())
        is_p2p = shape["op"] in _P2P
        comm.calls += not is_p2p
        way = _EXCHANGES.get(shape["op"]) if comm.rank >= 0 else None
        peers = f" {comm.rank}{way}{shape['peer']}" if way and shape["peer"] >= 0 else ""
        entry = {
            "record_id": self.issued,
            "process_group": (shape["comm"], ""),
            "collective_seq_id": -1 if is_p2p else comm.calls,
            "p2p_seq_id": -1,
            "profiling_name": f"{_BACKEND}:{shape['op']}{peers}",
            "is_p2p": is_p2p,
            "time_created_ns": time_ns,
            "state": "scheduled",
            "retired": False,
            **shape["tensors"],
        }
        self.entries.append(entry)
        for event in ("S", "E"):
            self.ahead[event, number].append(self.issued)
        self.issued += 1

    def _of_graph(self, fields: list[str]) -> None:
        number = next((each for each in fields if each[:1] == "C"), "")
        if shape := self.signatures.get(number):
            self.comms.setdefault(shape["comm"], _Comm()).is_replayed = True


def decode_clog(data: bytes, shared: Dictionaries) -> Decoded:
    """Make a dump of a file of Clog's.

    Raises:
        LostDumpError: It names no call.
    """
    lines = BytesIO(data)
    log = _Log(_ns(lines.readline().removeprefix(CLOG_HEAD).decode("ascii", "replace").strip()))
    for line in lines:
        if line.endswith(b"\n"):  # else it is being written
            log.take(line.decode("utf-8", "replace").rstrip())
    if not log.entries:
        raise LostDumpError("it is a Clog file without a call")
    return _as_dump(log, shared, len(data))


def _as_dump(log: _Log, shared: Dictionaries, size: int) -> Decoded:
    world = max(log.comms.values(), key=lambda comm: comm.size)
    graphs = {name for name, comm in log.comms.items() if comm.is_replayed}
    entries = list(log.entries)
    for entry in entries:
        if entry["process_group"][0] in graphs:
            entry["collective_seq_id"] = -1
    value = {"entries": entries, "pg_config": _groups(log, world)}
    decoded = normalise(value, shared, size + _MOST_CALLS)
    decoded.origin = Origin(rank=world.rank, world_size=world.size, backend=_BACKEND)
    decoded.reported_by = BY_CLOG
    decoded.recorder = BY_TORCHCOMMS if log.tells_ends else AT_ISSUE
    if graphs:
        names = count_of(len(graphs), "communicator")
        decoded.remarks.append(
            f"has no usable sequence numbers of {names}: Clog gives replays of graphs no place"
        )
    if log.issued > len(entries):
        decoded.remarks.append(f"read the last {len(entries):,} of {log.issued:,} calls")
    if log.strange:
        decoded.remarks.append(f"skipped {count_of(log.strange, 'line')} of no known form")
    return decoded


def _groups(log: _Log, world: _Comm) -> dict[str, dict[str, Any]]:
    """Of the largest communicator, which is the job's, and of those that were split off it."""
    return {
        name: {"name": name, "desc": "", "ranks": list(ranks)}
        for name, comm in log.comms.items()
        if (ranks := comm.members(world))
    }


def _signature(fields: list[str]) -> dict[str, Any]:
    op, told = fields[0] if fields else "", _named(fields[1:])
    kinds = [_DTYPES[told["dtype"]]] if told.get("dtype") in _DTYPES else []
    tensors = {
        f"{side}_{what}": value
        for side, own in (("input", "in"), ("output", "out"))
        for what, value in (("sizes", _sizes(told, own)), ("dtypes", kinds))
    }
    return {
        "op": op,
        "comm": told.get("comm", ""),
        "peer": as_int(told.get("peer")),
        "tensors": tensors,
    }


def _sizes(told: dict[str, str], side: str) -> list[list[int]]:
    """Of a side's tensors; splits are of one tensor."""
    if f"{side}_splits" in told:
        return [[sum(_numbers(told[f"{side}_splits"]))]]
    several = told.get(f"{side}_counts")
    if several is not None:
        return [[number] for number in _numbers(several)]
    return [[number] for number in _numbers(told.get(f"{side}_count", ""))]


def _numbers(text: str) -> list[int]:
    return [number for number in map(as_int, text.split(",")) if number >= 0]


def _named(fields: Sequence[str]) -> dict[str, str]:
    return {name: value for name, _, value in (each.partition("=") for each in fields)}


def _ns(seconds: str) -> int:
    """Nanoseconds of "1795000000.005", without the rounding of a float."""
    whole, _, part = seconds.partition(".")
    return as_int(whole, 0) * 10**9 + as_int(part[:9].ljust(9, "0"), 0)
