"""Dumps made of rings of last calls, for ranks that could leave none.

A rank that is killed, or does not answer, leaves no dump; its heartbeat's file is there all the
same. It knows the calls that went through Python. Where the group's own count tells of others,
which C++ made (DDP does), what was before them is left out, and the newest calls may be lacking.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from unhang.ingest.columns.decoded import LostDumpError
from unhang.ingest.columns.dumpfiles import DumpFile
from unhang.ingest.pages.page import BARRIER, PageCall, PageGroup, calls_of, groups_of
from unhang.model import Note
from unhang.record.contact.beatlayout import GroupBeat
from unhang.record.contact.heartbeat import Heartbeat, parse_heartbeat
from unhang.record.contact.latest import DTYPE_NAMES, DTYPES, PAGE_BYTES, Flag, Item
from unhang.wording import rank_phrase

_AFTER_SOME: Final = 1000
_EXCHANGES: Final = {"send": "->", "recv": "<-", "recv_anysource": "<-"}
_NO_CALLS: Final = ("", "new_group")
_ON_HOST: Final = "gloo"
_COUNTS: Final = frozenset({"gloo", "nccl", "xccl"})


@dataclass(frozen=True, slots=True)
class PageDump:
    """What a rank would have dumped, of one backend.

    Attributes:
        value: Torch's layout.
        problem: Why its newest calls may be lacking, or "".
    """

    value: dict[str, Any]
    problem: str = ""


@dataclass(slots=True)
class _Placed:
    """The calls of one group whose numbers are known, and whether there may be younger ones."""

    group: PageGroup
    calls: list[PageCall]
    is_whole: bool
    beat: GroupBeat | None = None


def dumps_of(data: bytes) -> Iterator[PageDump]:
    """What the file of one heartbeat tells of the last calls of its rank, a backend at a time.

    Raises:
        LostDumpError: It is cut short, of another version, or holds no call whose place is known.
    """
    if len(data) != PAGE_BYTES:
        raise LostDumpError("it is no whole page of last calls")
    beat = parse_heartbeat(data)
    if beat is None:
        raise LostDumpError("it was written by another version of unhang")
    rows = dict(groups_of(data))
    calls = calls_of(data, beat, rows)
    made = [call for call in calls if call.op not in _NO_CALLS]
    usable = [call for call in made if _is_placeable(call)]
    if made and not usable:
        raise LostDumpError("of no call in it the place among those of its group is known")
    placed = _placed(usable, beat)
    problem = _problem(placed, len(made) - len(usable))
    if not placed:
        yield PageDump(_value(beat, [], (), _backend_of(beat, rows), is_first=not made))
        return
    is_first = calls[0][Item.NUMBER] == 1
    by_backend = sorted(placed, key=lambda each: each.group.backend)
    for backend, groups in groupby(by_backend, key=lambda each: each.group.backend):
        own = list(groups)
        first = is_first and all(each.is_whole for each in own)
        yield PageDump(_value(beat, own, rows.values(), backend, is_first=first), problem)


def where_needed(files: Sequence[DumpFile], notes: list[Note]) -> list[DumpFile]:
    """The files without the pages of ranks that left a dump; of the others a note tells."""
    dumped = {(item.rank, item.replica) for item in files if item.decoded and not item.is_page}
    kept = [item for item in files if not item.is_page or (item.rank, item.replica) not in dumped]
    ranks = sorted({item.rank for item in kept if item.is_page and item.decoded})
    if ranks:
        text = (
            f"{rank_phrase(ranks)} left no dump: what is said of its calls rests on the ring of "
            "last calls in its heartbeat, which knows calls from Python alone"
            if len(ranks) == 1
            else f"{rank_phrase(ranks)} left no dumps: what is said of their calls rests on the "
            "rings of last calls in their heartbeats, which know calls from Python alone"
        )
        notes.append(Note("warning", "last calls", text))
    return kept


def _is_placeable(call: PageCall) -> bool:
    """Whether its number among the calls of its group is known."""
    if call.group is None or call[Item.FLAGS] & Flag.OWN or call.group.backend not in _COUNTS:
        return False
    if call.is_exchange:
        return call.group.backend == _ON_HOST and call.op in _EXCHANGES
    return call[Item.SEQ] > 0


def _placed(calls: Sequence[PageCall], beat: Heartbeat) -> list[_Placed]:
    """The newest calls of each group between which none is lacking."""
    by_group: dict[PageGroup, list[PageCall]] = {}
    for call in calls:
        if call.group is not None:
            by_group.setdefault(call.group, []).append(call)
    return [_of_group(group, own, _beat_of(group, beat), beat) for group, own in by_group.items()]


def _of_group(
    group: PageGroup, calls: list[PageCall], counted: GroupBeat | None, beat: Heartbeat
) -> _Placed:
    counts_all = group.backend == _ON_HOST
    start, stop, expected, is_whole = 0, len(calls), 0, True
    for place, call in enumerate(calls):
        if call.is_exchange:
            expected += bool(expected)
            continue
        if expected and call[Item.SEQ] != expected:
            start, is_whole = place, False
        expected = call[Item.SEQ] + (call.takes if counts_all else 1)
    seen = [call for call in calls if call[Item.BEGUN_NS] <= beat.tick_ns]
    if counted is not None and len(seen) == len(calls) and counted.last_enqueued >= expected > 0:
        is_whole = False  # C++ has made others since, or among those whose numbers are assumed
        stop = 1 + max((n for n, call in enumerate(calls) if call.is_asked), default=-1)
    return _Placed(group, calls[start:stop], is_whole, counted)


def _beat_of(group: PageGroup, beat: Heartbeat) -> GroupBeat | None:
    """The counters of torch's recorder for a group; a long name or description was cut."""
    for each in beat.groups:
        own = each.recorder == group.backend and each.name
        if (
            own
            and group.name.startswith(each.name)
            and (group.description.startswith(each.description))
        ):
            return each
    return None


def _backend_of(beat: Heartbeat, rows: Mapping[int, PageGroup]) -> str:
    told = [*(row.backend for row in rows.values()), *(each.recorder for each in beat.groups)]
    return next(iter(told), "")


def _problem(placed: Iterable[_Placed], unplaced: int) -> str:
    if unplaced:
        return f"the places of {unplaced} of its last calls are not known"
    if not all(each.is_whole for each in placed):
        return "C++ has made calls of its own in between, which the ring of last calls lacks"
    return ""


# ------------------------------------------------------------------ torch's layout


def _value(
    beat: Heartbeat,
    placed: Sequence[_Placed],
    rows: Iterable[PageGroup],
    backend: str,
    *,
    is_first: bool,
) -> dict[str, Any]:
    """The dump. Only where no call came before its own does it begin with record 0."""
    ids = {each.group: each.beat.pg_id if each.beat else -1 for each in placed}
    counted = {each.beat.pg_id: each.beat for each in placed if each.beat}
    ordered = sorted(
        ((call, each) for each in placed for call in each.calls),
        key=lambda pair: pair[0][Item.NUMBER],
    )
    entries: list[dict[str, Any]] = []
    ours: list[dict[str, Any]] = []
    first = 0 if is_first else _AFTER_SOME
    sequences = _sequences(placed)
    for call, each in ordered:
        entry = _entry(call, each, beat) | {"pg_id": ids[each.group]}
        entry["collective_seq_id"] = sequences[call[Item.NUMBER]]
        if call.is_exchange or call.op == BARRIER:
            after = first + len(entries) - 1 if entries else -1
            ours.append(entry | {"record_id": call[Item.NUMBER], "after_record_id": after})
        else:
            entries.append(entry | {"record_id": first + len(entries)})
    return {
        "version": "2.10",
        "entries": entries,
        "pg_config": {
            row.name: {"name": row.name, "desc": row.description, "ranks": list(row.members)}
            for row in rows
            if row.members and row.backend == backend
        },
        "pg_status": {
            str(number): {
                "last_enqueued_collective": each.last_enqueued,
                "last_started_collective": each.last_started,
                "last_completed_collective": each.last_completed,
            }
            for number, each in counted.items()
        },
        "unhang": _own_words(beat, backend, ours, [call for call, _ in ordered]),
    }


def _sequences(placed: Iterable[_Placed]) -> dict[int, int]:
    """What torch's recorder calls the number of each collective, by the number of the record.

    Gloo's own count includes sends and receives, torch's number of a collective does not. Of an
    exchange it is the number of the collective before it.
    """
    found = {}
    for each in placed:
        last = 0
        for call in each.calls:
            if not call.is_exchange:
                others = call[Item.P2P_SEQ] if each.group.backend == _ON_HOST else 0
                last = max(call[Item.SEQ] - others, 0)
            found[call[Item.NUMBER]] = last
            last += call.op == BARRIER
    return found


def _entry(call: PageCall, placed: _Placed, beat: Heartbeat) -> dict[str, Any]:
    group = placed.group
    inputs, outputs = call[Item.INPUTS], call[Item.OUTPUTS]
    number = call[Item.DTYPE] - 1
    dtype = [DTYPE_NAMES[DTYPES[number]]] if 0 <= number < len(DTYPES) else []
    is_over = _is_over(call, placed, beat)
    entry = {
        "process_group": (group.name, group.description),
        "p2p_seq_id": call[Item.P2P_SEQ],
        "op_id": -1 if call.is_exchange else call[Item.SEQ],
        "profiling_name": f"{group.backend}:{_name(call, group)}",
        "time_created_ns": max(call[Item.BEGUN_NS], 0),
        "frames": call.frames,
        "input_sizes": [[inputs]] if inputs >= 0 else [],
        "output_sizes": [[outputs]] if outputs >= 0 else [],
        "input_dtypes": dtype if inputs >= 0 else [],
        "output_dtypes": dtype if outputs >= 0 else [],
        "state": "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": is_over,
        "timeout_ms": group.timeout_ms,
        "is_p2p": call.is_exchange,
    }
    if call.is_exchange or call.op == BARRIER:  # our own entries, whose states tell
        entry["state"] = "completed" if is_over else "started"
        if call[Item.FLAGS] & Flag.FAILED:
            entry["error"] = "it raised"
    elif group.backend != _ON_HOST:
        entry["state"] = "completed" if is_over else "scheduled"
    return entry


def _name(call: PageCall, group: PageGroup) -> str:
    if not call.is_exchange:
        return call.op
    peer = call[Item.PEER] if call[Item.PEER] >= 0 else "?"
    return f"{'send' if call.op == 'send' else 'recv'} {group.rank}{_EXCHANGES[call.op]}{peer}"


def _is_over(call: PageCall, placed: _Placed, beat: Heartbeat) -> bool:
    """Whether a call has ended, as far as the page tells.

    On the host the end of its wait is its end. A device is asked once a second: of what it was
    given since, nothing says that it has not ended, and a hang would have been there to be seen.
    """
    if call[Item.FLAGS] & Flag.FAILED:
        return False
    counters = placed.beat
    if placed.group.backend == _ON_HOST:
        if call[Item.ENDED_NS] > 0 or call.is_exchange or counters is None:
            return call[Item.ENDED_NS] > 0
        return call[Item.SEQ] <= counters.last_completed
    if counters is None:
        return True
    return call[Item.SEQ] <= counters.last_completed or call[Item.BEGUN_NS] > beat.tick_ns


def _own_words(
    beat: Heartbeat, backend: str, ours: list[dict[str, Any]], calls: Sequence[PageCall]
) -> dict[str, Any]:
    """The key `unhang`: who it is, and which of its sends and receives block it."""
    blocking = [
        [call[Item.NUMBER], call[Item.TAG]] for call in calls if call.is_exchange and _blocks(call)
    ]
    return {
        "rank": beat.rank,
        "local_rank": beat.local_rank,
        "world_size": beat.world_size,
        "pid": beat.pid,
        "backend": backend,
        "time_ns": max(beat.last_ns, beat.tick_ns),
        "step": beat.step,
        "entries": ours,
        "open_tags": blocking,
    }


def _blocks(call: PageCall) -> bool:
    """Whether the program waits in an exchange; one that it has not waited for blocks no rank."""
    waits = call[Item.FLAGS] & Flag.AWAITED or not call[Item.WORK]
    return bool(waits and not call[Item.ENDED_NS]) or bool(call[Item.FLAGS] & Flag.FAILED)
