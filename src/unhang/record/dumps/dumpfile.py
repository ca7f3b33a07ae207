"""Dump files: torch's own layout, with a true `pg_config`, and what torch lacks under `unhang`.

One file per recorder and rank. Writing takes a temporary name, fsync, and a link to the final name,
which fails where the name is taken: no evidence is ever overwritten. Where a place cannot be
written (read-only, full), the next one is tried and the failure goes into the file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import socket
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from time import time_ns
from typing import Any, Final

from unhang._version import __version__
from unhang.rankenv import attempt_of
from unhang.record.calls.groups import channels, note_groups, pg_config, torch_records
from unhang.record.calls.recorder import Recorder
from unhang.record.calls.ring import FAILED, RingEntry
from unhang.record.calls.sites import current_stacks
from unhang.record.contact.client import AskError
from unhang.record.contact.runtime_dir import private_dir
from unhang.record.dumps.torchfr import COUNTERS, TorchRecorder, crashes, recorders
from unhang.record.process import ArmedProcess, env_local_rank

SCHEMA: Final = "unhang.dump/1"
THREAD_NAME: Final = "unhang"
"""The recorder's own thread, which does not belong in a dump."""
MOST_OPEN_TAGS: Final = 256
"""As `unhang.bounds` has it, which processes of a job do not import."""
FORMAT_VERSION: Final = "2.10"
"""The version of torch's layout that our own recorder writes."""


@dataclass(slots=True, eq=False, repr=False)
class DumpDraft:
    """A dump that is not a file yet.

    Attributes:
        backend: Name of the directory that it goes to.
        content: torch's layout with the key `unhang`.
        source: Torch's recorder, where the entries came from there.
        path: Where it was written.
    """

    backend: str
    content: dict[str, Any]
    source: TorchRecorder | None = None
    path: Path | None = None


# ------------------------------------------------------------------ collecting


def collect(
    recorder: Recorder,
    *,
    collectives: bool = True,
    stacks: bool = True,
    own_stacks: bool = True,
    only_active: bool = False,
) -> list[DumpDraft]:
    """Take a dump of every recorder of this process that holds something or has groups.

    Args:
        recorder: Ours.
        collectives: With entries; without, counters and identity only.
        stacks: With the Python stack of each of torch's entries. The first dump with stacks
            costs more than a second of CPU; without, 2,000 entries take 20 ms.
        own_stacks: The same for our own entries, where it costs little.
        only_active: Leave out what has ended.
    """
    state = recorder.state
    note_groups(state)
    recorder.followed.ask_all()
    in_use = {name for group in list(state.groups.values()) for name in group.backend.split(",")}
    own = state.ring.entries() if collectives else []
    if only_active:
        own = [entry for entry in own if entry.pending]
    dumps = []
    if "nccl" in in_use and crashes():
        state.failures.add("torch 2.2's NCCL recorder is not asked: that can crash the process")
    for source in recorders(state.worker_socket, state.hooked):
        content = _ask(state, source, (collectives, stacks, only_active))
        if content is not None and (content.get("entries") or source.backend in in_use):
            dumps.append(DumpDraft(source.backend, content, source))
    unrecorded = in_use - {dump.backend for dump in dumps} - {""}
    dumps += [DumpDraft(backend, _empty()) for backend in sorted(unrecorded)]
    for dump in dumps:
        _complete(state, dump, own, stacks=own_stacks)
    return dumps


def _ask(
    state: ArmedProcess, source: TorchRecorder, options: tuple[bool, bool, bool]
) -> dict[str, Any] | None:
    """What a recorder holds; its counters alone where its entries do not come in time."""
    collectives, stacks, only_active = options
    for entries in (collectives, False)[: 1 + collectives]:
        try:
            return source.dump(collectives=entries, stacks=stacks, only_active=only_active)
        except (OSError, RuntimeError, ValueError) as error:  # noqa: PERF203 - two rounds at most
            state.failures.add(f"torch's {source.backend} recorder", error)
            if not isinstance(error, AskError):
                break
    return None


def _empty() -> dict[str, Any]:
    return {
        "version": FORMAT_VERSION,
        "pg_config": {},
        "comm_lib_version": "",
        "pg_status": {},
        "entries": [],
    }


def _complete(state: ArmedProcess, dump: DumpDraft, own: list[RingEntry], *, stacks: bool) -> None:
    """Add what torch does not know: the groups' truth, our entries, and the key `unhang`."""
    content = dump.content
    unnamed = any("process_group" not in entry for entry in content.get("entries", [])[:1])
    if not unnamed:  # up to torch 2.3, groups have local ids, which its own table explains
        content["pg_config"] = pg_config(state) or content.get("pg_config", {})
    ours = [entry for entry in own if entry.name.partition(":")[0] == dump.backend]
    beside: list[dict[str, object]] = []
    if dump.source is not None and torch_records() and state.settings.full != "always":
        beside = [] if unnamed else _beside(content.get("entries", []), ours, stacks=stacks)
    else:
        content["entries"] = [entry.as_torch(stacks=stacks) for entry in ours]
        content["pg_status"] = _status(dump.backend)
    content["unhang"] = _extra(state, dump.backend, beside) | {"open_tags": _open_tags(ours)}


def _status(backend: str) -> dict[str, dict[str, int]]:
    """`pg_status` of the full recorder."""
    return {
        str(channel.pg_id): dict(
            zip(COUNTERS, (channel.last_enqueued, -1, channel.last_completed), strict=True)
        )
        for channel in channels()
        if backend in channel.by_device.values()
    }


def _beside(
    torch_entries: list[dict[str, Any]], ours: list[RingEntry], *, stacks: bool
) -> list[dict[str, object]]:
    """Our entries next to torch's, placed by their times: both clocks are this host's wall clock.

    Each gets `after_record_id`, the group's id in this dump, the sequence number of collectives as
    of then, and its own among all operations of the group, which Gloo counts together. -1 where an
    older one may be missing. To ask Gloo at each call would cost as much as all else that is noted.
    monitored_barrier takes two such numbers (seen on torch 2.13), though torch records none of
    them.
    """
    rows = []
    position, last_id = 0, -1
    firsts = [row["record_id"] for row in torch_entries[:1]] + [entry.number for entry in ours[:1]]
    unseen = -1 if any(firsts) else 0
    collectives: dict[tuple[str, str], int] = {}
    operations: dict[tuple[str, str], int] = {}
    ids = {tuple(entry["process_group"]): entry["pg_id"] for entry in torch_entries}
    for entry in ours:
        while (
            position < len(torch_entries)
            and torch_entries[position]["time_created_ns"] <= entry.created_ns
        ):
            row = torch_entries[position]
            last_id = row["record_id"]
            collectives[tuple(row["process_group"])] = row["collective_seq_id"]
            operations[tuple(row["process_group"])] = row.get("op_id", -1)
            position += 1
        key = (entry.channel.name, entry.channel.description)
        own = entry.as_torch(stacks=stacks)
        before, taken = operations.get(key, unseen), 1 if entry.is_p2p else 2
        if before >= 0:
            own["op_id"] = before + 1
            operations[key] = before + taken
        if not entry.is_p2p:
            collectives[key] = collectives.get(key, 0) + taken
        sequence = collectives.get(key, 0)
        own["collective_seq_id"] = sequence if entry.is_p2p else sequence - 1
        own["pg_id"] = ids.get(key, -1)
        own["after_record_id"] = last_id
        rows.append(own)
    return rows


def _extra(state: ArmedProcess, backend: str, entries: list[dict[str, object]]) -> dict[str, Any]:
    """The key `unhang`: who wrote the dump, when, why, and what only we know."""
    return {
        "schema": SCHEMA,
        "tool_version": __version__,
        "job_id": state.job_id,
        "attempt": attempt_of(os.environ),
        "incident": "",
        "rank": state.rank,
        "local_rank": env_local_rank(),
        "replica": state.settings.replica,
        "world_size": state.world_size,
        "host": socket.gethostname(),
        "pid": state.pid,
        "role": state.role,
        "backend": backend,
        "reason": "",
        "time_ns": time_ns(),
        "armed_by": state.armed_by,
        "step": state.step,
        "torch": str(getattr(sys.modules.get("torch"), "__version__", "")),
        "dropped": state.ring.dropped,
        "failures": list(state.failed_calls),
        "problems": list(state.failures.texts()),
        "exception": state.exception,
        "groups": [
            {
                "name": group.name,
                "description": group.description,
                "ranks": list(group.ranks),
                "backend": group.backend,
                "timeout_ms": group.timeout_ms,
            }
            for group in list(state.groups.values())
        ],
        "stacks": _stacks(),
        "entries": entries,
    }


def _open_tags(ours: list[RingEntry]) -> list[list[int]]:
    """Number and tag of our open sends and receives: Gloo matches them by tag, not by order.

    Their entries say so too, but no reader keeps a column for what so few calls need. An open call
    that is not listed, where there is room, is one that the program has let go of: so those that
    failed are listed too, whose entries look open.
    """
    calls = (entry for entry in ours if entry.is_p2p)
    opened = [entry for entry in calls if entry.pending or entry.state == FAILED]
    return [[entry.number, entry.tag] for entry in opened[-MOST_OPEN_TAGS:]]


def _stacks() -> dict[str, Any]:
    """The Python stacks of the program's threads: the main thread's, and the others'."""
    threads = {thread.ident: thread for thread in threading.enumerate()}
    main = threading.main_thread().ident
    stacks = current_stacks()
    return {
        "main": stacks.get(main or 0, []),
        "threads": [
            {
                "name": threads[ident].name if ident in threads else "",
                "tid": getattr(threads.get(ident), "native_id", None) or 0,
                "frames": frames,
            }
            for ident, frames in stacks.items()
            if ident != main and (ident not in threads or threads[ident].name != THREAD_NAME)
        ],
    }


def add_frames(dump: DumpDraft) -> bool:
    """Give the entries of a dump taken without stacks their frames, by record id.

    What the dump says about states stays as it was when it was taken: a second look may see calls
    retired by the time-out that the first one saw hanging. Returns whether anything was added.

    Raises:
        RuntimeError: Torch could not resolve the stacks.
    """
    if dump.source is None:
        return False
    later = dump.source.dump(collectives=True, stacks=True, only_active=False)
    frames = {entry["record_id"]: entry.get("frames") for entry in later.get("entries", [])}
    for entry in dump.content.get("entries", []):
        found = frames.get(entry["record_id"])
        if found is not None:
            entry["frames"] = found
    return True


def encode(content: dict[str, Any]) -> bytes:
    """The bytes of a dump: pickle protocol 2, as torch's own."""
    return pickle.dumps(content, protocol=2)


# ------------------------------------------------------------------ writing


def write(dumps: list[DumpDraft], places: list[Path], name: str, recorder: Recorder) -> list[Path]:
    """Write dumps into an incident directory under the first place that takes them.

    Args:
        dumps: One per recorder; their `path` is set.
        places: Directories in which to make the incident directory, best first.
        name: Name of the incident directory; `.2`, `.3`… is added where this rank's file is there.
        recorder: Ours: what could not be written becomes a failure, and goes into the files.

    Returns:
        The files written; empty where no place took them.
    """
    for place in places:
        try:
            return [_write_one(dump, place, name, recorder.state) for dump in dumps]
        except OSError as error:  # noqa: PERF203 - a few places at most
            recorder.state.failures.add(f"dump not written to {place}", error)
            for dump in dumps:
                dump.content["unhang"]["problems"] = list(recorder.state.failures.texts())
    return []


def _write_one(dump: DumpDraft, place: Path, name: str, state: ArmedProcess) -> Path:
    rank = "pid" + str(state.pid) if state.rank is None else state.rank
    for number in range(1, 1000):
        incident = name if number == 1 else f"{name}.{number}"
        path = place / incident / "dumps" / dump.backend / f"rank_{rank}"
        dump.content["unhang"]["incident"] = incident
        private_dir(path.parent)
        try:
            _write_file(path, encode(dump.content), replace=False)
        except FileExistsError:
            continue
        dump.path = path
        return path
    raise OSError(errno.EEXIST, "too many dumps of this rank", str(place / name))


def rewrite(dump: DumpDraft) -> None:
    """Write a dump again, with its frames, in place of what it was without them.

    Raises:
        OSError: It cannot be written; the first file is as it was.
    """
    if dump.path is not None:
        _write_file(dump.path, encode(dump.content), replace=True)


def _write_file(path: Path, data: bytes, *, replace: bool) -> None:
    """Write in one step: temporary name, fsync, then the name itself."""
    handle, temporary = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if replace:
            Path(temporary).replace(path)
        else:
            _name(Path(temporary), path)
        _sync_directory(path.parent)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _name(temporary: Path, path: Path) -> None:
    """Give a file its name, unless the name is taken.

    A hard link does both in one step. Where the file system has none, looking first must do: no
    other process writes this rank's files.
    """
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        raise
    except OSError:
        if path.exists():
            raise FileExistsError(errno.EEXIST, "there is a file", str(path)) from None
        temporary.rename(path)


def _sync_directory(path: Path) -> None:
    """Make the name itself durable, where the file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
