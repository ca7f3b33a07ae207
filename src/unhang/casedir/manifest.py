"""What each node contributed to a case, and the manifest that is merged from it.

The manifest says per rank what was asked for, what came, and why not. This module writes and
merges; it does not know how anything was collected, and judges nothing.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from unhang.bounds import is_rank, largest_world
from unhang.casedir.contents import AskedPart
from unhang.casedir.new import undone_if_empty
from unhang.casedir.sharing import (
    MOST_CASES,
    can_join,
    cannot_write,
    ending_path,
    is_reserved,
    numbered,
    part_path,
    reserve,
)
from unhang.errors import OutputError
from unhang.incoming import fitting, overlaid, value_in
from unhang.record.contact.runtime_dir import private_dir, private_opener, safe_name
from unhang.wording import intervals

SCHEMA: Final = "unhang.case/1"
CASES: Final = "unhang-cases"
FOLDERS: Final = ("dumps", "stacks", "logs", "env", "parts")

_LATE: Final = ".late.json"
_MAX_PART: Final = 32 << 20
_LISTED: Final = 1 << 14
"""So many ranks that no node reports are listed all the same."""


@dataclass(frozen=True, slots=True)
class RankPart:
    """What one node has to say of one of its ranks.

    Attributes:
        came: What is there, as "kind": path in the case directory (or a word where no file is).
        missing: What is not, as "kind": why.
        exit_status: As shells say it; None while it runs or where nothing tells.
        last_seen: Its last line, as its heartbeat tells: file, line, function, age_s.
    """

    rank: int
    host: str = ""
    pid: int = -1
    state: str = ""
    phase: str = ""
    came: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    exit_status: int | None = None
    last_seen: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_found(self) -> bool:
        """Whether there was a process of it; the launcher has started one, else it has no part."""
        return "all" not in self.missing


@dataclass(frozen=True, slots=True)
class NodePart:
    """What one node contributed.

    Attributes:
        run: Id of the collecting run; one file a run.
        world_size: As its ranks say; 0 where unknown.
        incident: id, reason, detail, time_ns, quiet_s; of a slow rank what was measured of it.
        timings_s: Seconds from the detection to the end of each step.
        streams: The command's output: name, path or why it is not there.
        notes: What went wrong while collecting.
        node: What its launcher calls it; "" where that is its host's name.
        missed: Why nothing came of it, where it was asked in vain.
        cluster, namespace: Whose node it is: "slurm", "kubernetes"…; "" where nothing tells.
    """

    run: str
    host: str = ""
    job: str = ""
    attempt: int = 0
    world_size: int = 0
    command: Sequence[str] = ()
    incident: Mapping[str, object] = field(default_factory=dict)
    ranks: Sequence[RankPart] = ()
    timings_s: Mapping[str, float] = field(default_factory=dict)
    streams: Sequence[Mapping[str, object]] = ()
    notes: Sequence[str] = ()
    node: str = ""
    missed: str = ""
    cluster: str = ""
    namespace: str = ""

    @property
    def name(self) -> str:
        """As its launcher calls it, else its host's name."""
        return self.node or self.host


@dataclass(frozen=True, slots=True)
class LateRun:
    """A run that takes part in a case and had given nothing when it was judged.

    Attributes:
        host: Its node, as its name tells.
        waited_s: For so long it was waited for.
        why: Why it can give nothing, where that is known.
        ranks: First and last of those that it had told of.
    """

    host: str
    waited_s: float = 0.0
    why: str = ""
    ranks: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class Ending:
    """How it went on after the case was made: exit code of the command, or that it moved on."""

    text: str
    exit_code: int | None = None


# ------------------------------------------------------------------ names and places


def create_case(
    root: Path, job: str, now_s: float, *, named: Path | None = None, run: str = ""
) -> Path:
    """Make a new case directory with its folders.

    Nodes of one job that were given one directory share it: the n-th incident of each of them goes
    into the n-th directory.

    Args:
        root: Where cases are kept.
        job: The job's id.
        now_s: Wall clock.
        named: The directory that the user wants; the first free of it, it-2, it-3… is taken.
        run: Who asks, where other runs of the same job may have been given the same directory.

    Raises:
        OutputError: It cannot be made.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now_s))
    first = named or root / f"{stamp}-{safe_name(job)}"
    for number in range(1, MOST_CASES):
        path = numbered(first, number)
        try:
            shared = bool(named and run) and can_join(path, first, job, run)
            with undone_if_empty(path):
                private_dir(path, exist_ok=shared or (number == 1 and is_reserved(path)))
                if run and named:
                    reserve(path, job)
                for folder in FOLDERS:
                    private_dir(path / folder, exist_ok=shared)
        except FileExistsError:
            continue
        except OSError as error:
            raise cannot_write(path, error) from error
        return path
    raise OutputError(f"{first} and {MOST_CASES} more like it are taken", "remove old cases")


# ------------------------------------------------------------------ writing


def not_found(ranks: Iterable[int], host: str = "") -> list[RankPart]:
    """What a node says of ranks that it should have, and that have no process."""
    why = {"all": "no process of it was found on its node"}
    return [RankPart(rank, host, missing=why) for rank in ranks]


def save_file(path: Path, data: bytes, *, at_once: bool = True) -> None:
    """Write a private file that appears whole or not at all.

    Args:
        path: The file.
        data: What is in it.
        at_once: It is on disk when this returns, which takes milliseconds a file.

    Raises:
        OSError: It cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "wb", opener=private_opener) as stream:
            stream.write(data)
            if at_once:
                stream.flush()
                os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_part(case: Path, part: NodePart, *, merge: bool = True) -> None:
    """Write what one node contributed, then merge the manifest again.

    Args:
        case: The case directory.
        part: What the node contributed.
        merge: False where many parts are written one after the other and merged at the end.

    Raises:
        OSError: It cannot be written.
    """
    save_file(part_path(case, part.run), _json(part), at_once=merge)
    if merge:
        merge_manifest(case)


def write_ending(case: Path, run: str, ending: Ending) -> None:
    """Add how it went on, then merge the manifest again.

    Raises:
        OSError: It cannot be written.
    """
    save_file(ending_path(case, run), _json(ending))
    merge_manifest(case)


def write_late(case: Path, run: str, late: LateRun) -> None:
    """Note that a run is late, and merge the manifest; its part takes the place of that.

    Raises:
        OSError: It cannot be written.
    """
    save_file(part_path(case, run).with_suffix(_LATE), _json(late))
    merge_manifest(case)


def _json(value: object) -> bytes:
    """A value as JSON; what a launcher says of a hundred thousand ranks is written in a second."""
    try:
        return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=1) + b"\n"
    except UnicodeEncodeError:  # half a character, as names of files may have it
        plain = msgspec.to_builtins(value, enc_hook=str)
        return (json.dumps(plain, indent=1) + "\n").encode()


def merge_manifest(case: Path) -> None:
    """Write manifest.json from the parts of all nodes that are there.

    Every node does so after its own part is in place; the last one sees all. Parts of other nodes
    are not trusted: what cannot be believed of one is left out, and said.
    """
    parts: list[NodePart] = []
    endings: dict[str, Ending] = {}
    late: dict[str, LateRun] = {}
    for path in sorted((case / "parts").glob("*.json")):
        value = value_in(path, _MAX_PART)
        if path.name.endswith(".end.json"):
            ended, misfits = overlaid(Ending(""), value)
            endings |= {} if misfits else {path.name.removesuffix(".end.json"): ended}
        elif path.name.endswith(_LATE):
            late[path.name.removesuffix(_LATE)] = overlaid(LateRun(path.name), value)[0]
        else:
            parts.append(_checked(value, path.stem))
    runs = {part.run for part in parts}
    missed = [each for run, each in late.items() if run not in runs]
    save_file(case / "manifest.json", _json(_manifest(parts, endings, missed)))


def _checked(value: object, run: str) -> NodePart:
    """A part as far as it can be believed."""
    told = value if isinstance(value, dict) else {}
    rows = told.get("ranks", [])
    ranks = [rank for rank in fitting(rows, RankPart) if is_rank(rank.rank)]
    part, misfits = overlaid(NodePart(run), {**told, "ranks": []})
    world = part.world_size if 0 <= part.world_size <= largest_world(len(ranks)) else 0
    all_ranks = isinstance(rows, list) and len(ranks) == len(rows)
    notes = [*part.notes]
    if told is not value or misfits or world != part.world_size or not all_ranks:
        notes.append("this part of the case is damaged: unhang skips what it cannot trust")
    return replace(part, ranks=ranks, world_size=world, notes=notes)


def agreed_world(sizes: Iterable[int]) -> int:
    """The world size that most nodes say, the larger one of a tie; 0 where none says one."""
    votes = Counter(size for size in sizes if size)
    return max(votes, key=lambda size: (votes[size], size), default=0)


def _manifest(
    parts: Sequence[NodePart], endings: Mapping[str, Ending], late: Sequence[LateRun] = ()
) -> dict[str, Any]:
    begun = [part for part in parts if _time_of(part)]
    first = min(begun, key=_time_of, default=None)
    world = agreed_world(part.world_size for part in parts)
    told = sorted((rank for part in parts for rank in part.ranks), key=lambda rank: rank.is_found)
    ranks: dict[int, object] = {rank.rank: rank for rank in told}
    looked_at = [*intervals(ranks)]
    missing = {"came": {}, "missing": {"all": "no node reported this rank"}}
    listed = min(world, max(_LISTED, 2 * len(ranks)))
    for number in range(listed):
        ranks.setdefault(number, {"rank": number, **missing})
    more = f"ranks {listed} to {world - 1}: no node reported them"
    return {
        "schema": SCHEMA,
        "world_size": world,
        "looked_at": looked_at,
        "cluster": next((part.cluster for part in parts if part.cluster), ""),
        "namespace": next((part.namespace for part in parts if part.namespace), ""),
        "asked": _asked(parts, late, world),
        "job": {key: getattr(first, key, None) for key in ("job", "attempt", "command")},
        "incident": first.incident if first else {},
        "nodes": [_node(part, endings.get(part.run)) for part in parts],
        "ranks": {str(number): ranks[number] for number in sorted(ranks)},
        **({"not_listed": more} if world > listed else {}),
    }


def _asked(parts: Sequence[NodePart], late: Sequence[LateRun], world: int) -> list[AskedPart]:
    """Every node with its ranks; those of the only one that told none are what the others leave.

    Whether it is one node that they are on, only the job's even share tells: each other node has as
    many.
    """
    told: dict[str, set[int]] = {}
    for part in parts:
        if not part.missed:
            told.setdefault(part.name, set()).update(rank.rank for rank in part.ranks)
    asked = [AskedPart(name, "answered", [*intervals(ranks)]) for name, ranks in told.items()]
    silent = [AskedPart(part.name, "not-reached", why=part.missed) for part in parts if part.missed]
    silent += [_silent_part(each) for each in late]
    silent = [each for each in silent if each.node not in told]
    left = set(range(world)).difference(*told.values())
    even = {len(ranks) for ranks in told.values() if ranks} == {len(left)}
    if len(silent) == 1 and even and not silent[0].ranks:
        silent = [replace(silent[0], ranks=[*intervals(left)], inferred=True)]
    return [*asked, *silent]


def _silent_part(late: LateRun) -> AskedPart:
    """A run that sent nothing: lost, where that is known, or late."""
    if late.why:
        return AskedPart(late.host, "not-reached", [*late.ranks], why=late.why)
    return AskedPart(late.host, "late", [*late.ranks], why=f"waited {late.waited_s:.0f} s")


def _node(part: NodePart, ending: Ending | None) -> dict[str, Any]:
    return {
        **{key: getattr(part, key) for key in ("run", "host", "timings_s", "streams", "notes")},
        "ranks": [rank.rank for rank in part.ranks],
        "ending": ending,
    }


def _time_of(part: NodePart) -> int:
    """When a node saw the incident; 0 where it does not say."""
    told = part.incident.get("time_ns")
    return told if type(told) is int and told > 0 else 0
