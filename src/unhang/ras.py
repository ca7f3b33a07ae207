"""What NCCL's RAS tells of a running job, read from what its client printed.

RAS (NCCL 2.24 and later) knows how many collectives each rank has launched on each communicator,
and which processes do not answer; it needs neither torch nor the GIL. It prints text, from 2.28.7
on also JSON; the text names the ranks of small groups only. Ranks are those of the communicator.
Nothing here decides who is to blame.

The profiler plugin Inspector (NCCL 2.28 and later, RCCL) counts as well: one file a process, one
JSON object a line for each call that ended. A call that never ended leaves no line, and a process
writes from time to time: the last lines of one that was killed may be lacking. The layout is that
of version 4 in the README of NVIDIA/nccl, plugins/profiler/inspector; no real file was at hand.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

MOST_BYTES = 64 << 20
"""Of one answer that are read."""

_MOST_RANKS = 1 << 20


class GpuProcess(Struct, frozen=True):
    """The process of a rank; "" and -1 where nothing tells."""

    host: str = ""
    pid: int = -1
    gpu: str = ""


class Communicator(Struct, frozen=True):
    """One communicator, by its own ranks.

    Attributes:
        name: NCCL's hash of it, or "#group-number" where the text has none.
        size: How many ranks it has.
        launched: Per operation ("" where the version counts all together), how many calls each rank
            has launched; ranks about which nothing tells are left out.
        missing: Ranks that gave no data.
        dead: Of these, the ones that NCCL has given up.
        places: Where ranks are, as far as it says so.
        errors: Ranks with an error that NCCL reports of itself.
    """

    name: str
    size: int
    launched: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    missing: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()
    places: Mapping[int, GpuProcess] = field(default_factory=dict)
    errors: tuple[int, ...] = ()


class RasStatus(Struct, frozen=True):
    """One answer of RAS.

    Attributes:
        version: Of NCCL, or "".
        n_ranks: Ranks (GPUs) of the whole job, as it says; 0 where it does not.
        communicators: Those that it says more about than that all is well, and all of JSON.
        dead: Processes that NCCL has given up, also those of unknown rank.
        repaired: Its JSON lacked a comma: NCCL 2.28.9 writes none where it tells of missing ranks.
        of_ended: The counts are of calls that ended, by the profiler plugin Inspector.
    """

    version: str = ""
    n_ranks: int = 0
    communicators: tuple[Communicator, ...] = ()
    dead: tuple[GpuProcess, ...] = ()
    repaired: bool = False
    of_ended: bool = False


def parse(text: str) -> RasStatus:
    """Read what `ncclras` printed, as text or JSON; what stands around it is passed over.

    Raises:
        ValueError: It is neither.
    """
    start = text.find("{")
    if start >= 0 and '"communicators"' in text:
        document, repaired = _document(text[start:])
        return replace(_of_json(document), repaired=repaired)
    if start >= 0 and '"event"' in text:
        return _of_events(text[start:])
    if not any(sign in text for sign in _SIGNS):
        raise ValueError("neither the text nor the JSON of NCCL's RAS")
    return _of_text(text)


_SIGNS = ("NCCL version", "Job summary", "ommunicator", "considered dead", "RAS Monitor Mode")


# ------------------------------------------------------------------ JSON


def _document(text: str) -> tuple[object, bool]:
    """The first value of a text, and whether it had to be repaired."""
    mended = re.sub(r'("nvml_dev": *-?\d+)(\s+"status")', r"\1,\2", text)
    try:
        return json.JSONDecoder().raw_decode(mended)[0], mended != text
    except RecursionError as error:
        raise ValueError("JSON that is nested too deep") from error


def _of_json(document: object) -> RasStatus:
    if not isinstance(document, dict) or not isinstance(document.get("communicators"), list):
        raise ValueError("JSON without communicators")  # noqa: TRY004 - it is wrong, not mistyped
    found = tuple(_communicator(each) for each in document["communicators"] if _is(each))
    places = {place for each in found for place in each.places.values()}
    return RasStatus(
        version=str(document.get("nccl_version", "")),
        n_ranks=max([len(places), *(each.size for each in found)]),
        communicators=found,
    )


def _of_events(text: str) -> RasStatus:
    """What monitor mode prints as JSON (NCCL 2.29 and later): one object an event.

    Raises:
        ValueError: An object that is no JSON.
    """
    dead: set[GpuProcess] = set()
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        try:
            event, end = decoder.raw_decode(text, at)
        except RecursionError as error:
            raise ValueError("JSON that is nested too deep") from error
        at = text.find("{", end)
        peer = event.get("peer")
        if event.get("event") == _GIVEN_UP and isinstance(peer, dict):
            gpus = peer.get("nvml_devs")
            gpu = ",".join(map(str, gpus)) if isinstance(gpus, list) else ""
            dead.add(GpuProcess(str(peer.get("host", "")), _number(peer.get("pid"), -1), gpu))
    return RasStatus(dead=_in_order(dead))


_GIVEN_UP = "PEER_DEAD"
"""The event of monitor mode that says so; who does not answer for a while may come back."""


def _in_order(processes: Iterable[GpuProcess]) -> tuple[GpuProcess, ...]:
    return tuple(sorted(processes, key=lambda each: (each.host, each.pid)))


def _is(value: object) -> bool:
    return isinstance(value, dict)


def _number(value: object, otherwise: int = 0) -> int:
    """A count from outside, or something else instead."""
    fits = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62
    return value if fits and isinstance(value, int) else otherwise


def _communicator(each: dict[str, object]) -> Communicator:
    ranks, missing = _ranks_of(each, "ranks"), _ranks_of(each, "missing_ranks")
    launched: dict[str, dict[int, int]] = {}
    for rank, told in ranks.items():
        counts = told.get("collective_counts")
        for op, count in counts.items() if isinstance(counts, dict) else ():
            launched.setdefault(str(op), {})[rank] = _number(count)
    return Communicator(
        name=str(each.get("hash", "")),
        size=_number(each.get("size"), len(ranks) + len(missing)),
        launched=launched,
        missing=tuple(sorted(missing)),
        dead=tuple(r for r, told in missing.items() if _status(told).get("considered_dead")),
        places={rank: _place(told) for rank, told in {**missing, **ranks}.items()},
        errors=tuple(r for r, told in ranks.items() if _failed(_status(told))),
    )


def _ranks_of(each: dict[str, object], key: str) -> dict[int, dict[str, object]]:
    told = each.get(key)
    rows = [row for row in told if _is(row)] if isinstance(told, list) else []
    numbered = {_number(row.get("rank"), -1): row for row in rows}
    return {rank: row for rank, row in numbered.items() if 0 <= rank < _MOST_RANKS}


def _status(told: dict[str, object]) -> dict[str, object]:
    status = told.get("status")
    return status if isinstance(status, dict) else {}


_IN_PROGRESS = 7


def _failed(status: dict[str, object]) -> bool:
    codes = (_number(status.get(key)) for key in ("init_state", "async_error"))
    return any(code not in (0, _IN_PROGRESS) for code in codes)


def _place(told: dict[str, object]) -> GpuProcess:
    gpu = _number(told.get("nvml_dev"), -1)
    return GpuProcess(str(told.get("host", "")), _number(told.get("pid"), -1), str(gpu))


# ------------------------------------------------------------------ text

# Compiled when they are first used: every case imports this module, few have anything of RAS.
_VERSION = r"NCCL version (\S+)"
_HEAD = r"^#(\d+)-(\d+) \(([0-9a-f]+)\) (MISMATCH|INCOMPLETE|ERROR)"
_GROUP = r"^ +(\d+) +(\d+) +\S+ +\S+ +(\d+) +(\d+) +[A-Z]+ +[A-Z]+"
_JOB = r"^ +\d+ +[\d-]+ +[\d-]+ +\d+ +(\d+)$"
_COUNTS = r"ommunicator ranks have different (.*?) ?operation counts"
_SOME = r"(\d+) ranks have (?:launched up to operation (\d+)|not launched any operations)"
_ONE = r"Rank (\d+) has (?:launched up to operation (\d+)|not launched any operations)"
_LISTED = r"Rank (\d+) -- "
_MISSING = r"The missing ranks?: ([\d, -]+)"
_WHERE = r"Rank (\d+) .*?GPUs? (.+?) managed by process (\d+) on node (\S+)"
_DEAD = r"Process (\d+) on node (\S+) managing GPUs? ([\d,]+)"
_EVENT = r"^\[[\d :-]+\] (\w+): "


class _Part(Struct):
    """What the text says of one communicator, as it is read line by line."""

    name: str
    size: int
    launched: dict[str, dict[int, int]] = field(default_factory=dict)
    rest: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)
    places: dict[int, GpuProcess] = field(default_factory=dict)
    errors: bool = False


def _of_text(text: str) -> RasStatus:
    version = re.search(_VERSION, text)
    sizes: dict[int, int] = {}
    parts: dict[str, _Part] = {}
    dead: set[GpuProcess] = set()
    part, op, value, section, total = None, "", -1, "", 0
    for line in text.splitlines():
        bare = line.strip()
        if job := re.match(_JOB, line):
            total = int(job[1])
        elif row := re.match(_GROUP, line):
            sizes[int(row[1])] = min(int(row[3]), _MOST_RANKS)
        elif head := re.match(_HEAD, bare):
            size = sizes.get(int(head[1]), 0)
            part = parts.setdefault(f"{head[1]}-{head[2]}", _Part(head[3], size))
            section, value = head[4], -1
        elif (event := re.match(_EVENT, bare)) and (process := re.search(_DEAD, bare)):
            if event[1] == _GIVEN_UP:
                dead.add(GpuProcess(process[2], int(process[1]), process[3]))
        elif bare in ("DEAD", "INCOMPLETE", "TIMEOUT"):
            part, section = None, bare
        elif part is None:
            if section == "DEAD" and (process := re.search(_DEAD, bare)):
                dead.add(GpuProcess(process[2], int(process[1]), process[3]))
        else:
            op, value = _line(part, bare, section, op, value)
    known = tuple(_finished(part, dead) for part in parts.values())
    named = version[1] if version else ""
    return RasStatus(
        version=named.removeprefix("NCCL"),
        n_ranks=total,
        communicators=known,
        dead=_in_order(dead),
    )


def _line(part: _Part, bare: str, section: str, op: str, value: int) -> tuple[str, int]:
    """Take one line about a communicator; returns the operation and the count that it is about."""
    if where := re.search(_WHERE, bare):
        part.places[int(where[1])] = GpuProcess(where[4], int(where[3]), where[2])
    if counts := re.search(_COUNTS, bare):
        return counts[1].removesuffix("collective").strip(), -1
    if some := re.search(_SOME, bare):
        part.rest.setdefault(op, []).append((int(some[1]), int(some[2] or 0)))
        return op, int(some[2] or 0)
    if one := re.search(_ONE, bare):
        part.launched.setdefault(op, {})[int(one[1])] = int(one[2] or 0)
    elif missing := re.search(_MISSING, bare):
        part.missing += _numbers(missing[1])
    elif (listed := re.search(_LISTED, bare)) and section == "INCOMPLETE":
        part.missing.append(int(listed[1]))
    elif listed and section == "MISMATCH" and value >= 0:
        part.launched.setdefault(op, {})[int(listed[1])] = value
    return op, value


def _numbers(text: str) -> Iterator[int]:
    for piece in text.replace(" ", "").split(","):
        first, _, last = piece.partition("-")
        if first.isdigit():
            end = int(last) if last.isdigit() else int(first)
            yield from range(int(first), min(end, int(first) + _MOST_RANKS) + 1)


def _process(place: GpuProcess | None) -> tuple[str, int] | None:
    """The process of a place: DEAD lists all its GPUs, a rank has one of them."""
    return (place.host, place.pid) if place else None


def _finished(part: _Part, dead: set[GpuProcess]) -> Communicator:
    """What a part amounts to: the one group whose ranks are not listed is all the others."""
    for op, groups in part.rest.items():
        told = part.launched.setdefault(op, {})
        unlisted = [v for n, v in groups if sum(c == v for c in told.values()) != n]
        if len(unlisted) == 1:
            others = set(range(part.size)) - set(told) - set(part.missing)
            told.update(dict.fromkeys(others, unlisted[0]))
    given_up = {_process(place) for place in dead}
    return Communicator(
        name=part.name,
        size=part.size,
        launched=part.launched,
        missing=tuple(sorted(set(part.missing))),
        dead=tuple(r for r in part.missing if _process(part.places.get(r)) in given_up),
        places=part.places,
    )


# ------------------------------------------------------------------ Inspector


_INSPECTED = ('"coll_perf"', '"inspector_output_format_version"')
_LOOKED_AT = 4_096
_MOST_CALLS = 1 << 40


def is_inspector(text: str) -> bool:
    """Whether a text begins as one of Inspector's."""
    head = text[:_LOOKED_AT].lstrip()
    return head[:1] == "{" and any(sign in head for sign in _INSPECTED)


def parse_inspector(text: str) -> RasStatus:
    """Read the lines of any number of processes; a line that was cut is passed over.

    Raises:
        ValueError: None of the lines is Inspector's.
    """
    ended: dict[str, dict[str, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    places: dict[str, dict[int, GpuProcess]] = defaultdict(dict)
    sizes: dict[str, int] = {}
    for name, size, rank, place, op, number in _calls(text):
        sizes[name] = max(size, sizes.get(name, 0))
        places[name][rank] = place
        ranks = ended[name][op]
        ranks[rank] = max(ranks.get(rank, 0), number + 1)
    if not sizes:
        raise ValueError("no line of NCCL Inspector")
    found = tuple(Communicator(n, sizes[n], ended[n], places=places[n]) for n in sorted(sizes))
    return RasStatus(n_ranks=max(sizes.values()), communicators=found, of_ended=True)


def _calls(text: str) -> Iterator[tuple[str, int, int, GpuProcess, str, int]]:
    for line in text.splitlines():
        try:
            told = json.loads(line)
            head, meta, call = told["header"], told["metadata"], told["coll_perf"]
            size, rank, number = (
                int(head["n_ranks"]), int(head["rank"]), int(call["coll_sn"]),
            )  # fmt: skip
            place = GpuProcess(str(meta["hostname"]), int(meta["pid"]))
            name, op = str(head["id"]), str(call["coll"])
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        if 0 <= rank < size <= _MOST_RANKS and 0 <= number < _MOST_CALLS:
            yield name, size, rank, place, op, number
