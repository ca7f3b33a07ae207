"""Reads saved stacks of any format from files and folders: samples and notes, never an exception.

A folder of stacks comes from outside and is treated so: sizes are bounded, nothing but regular
files is opened, one bad file becomes a note. It refuses to judge what the stacks mean.
"""

from __future__ import annotations

import codecs
import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import is_
from pathlib import Path

from unhang.model import UNKNOWN_RANK, Frame, Note, ProcessSample, ThreadStack
from unhang.regular import open_regular, reason
from unhang.stacks.alike import MAX_TEXT, Alike
from unhang.stacks.formats import OURS, format_of
from unhang.stacks.naming import host_in_name, numbered_ranks, rank_in_name
from unhang.stacks.pieces import Piece, split
from unhang.stacks.roles import ranks_of_titles, role_of_stack
from unhang.telltale import without_secrets
from unhang.wording import count_of

MAX_FILE_BYTES = 256 << 20
MAX_FILES = 300_000
MAX_DEPTH = 6
MAX_FRAMES = 1_000
MAX_THREADS = 10_000
_HEAD_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read: samples by rank, host, process and time, and notes on what was not."""

    samples: tuple[ProcessSample, ...] = ()
    notes: tuple[Note, ...] = ()


def is_stacks(head: bytes) -> bool:
    """Whether the beginning of a file (64 KB suffice) looks like saved stacks."""
    text = head[:_HEAD_BYTES].decode("utf-8", "replace")
    if "\0" in text:
        return False
    return any(found for piece in split(text) if (found := format_of(piece.text)))


def read_stacks(path: str | os.PathLike[str], without: Collection[Path] = ()) -> Reading:
    """Read a file of stacks, or all such files in a folder and the folders in it, but for some.

    Files of other kinds in a folder are passed over silently; a file that was named itself or by
    its rank, or that looks like stacks and cannot be read, gives a note.
    """
    root = Path(path)
    if not root.is_dir():
        return _finish([_read_file(root, root.name, {})])
    found, notes = _files_below(root)
    files = [file for file in found if file not in without]
    above = len(os.path.join(root, ""))  # noqa: PTH118 - a Path for each of 100,000 files takes long
    names = {file: str(file)[above:] for file in files}
    numbered = numbered_ranks(list(names.values()))
    alike = Alike(_alone)
    readings = [_read_file(file, names[file], numbered, alike, quiet=True) for file in files]
    by_number = [n for n in numbered if rank_in_name(n) == UNKNOWN_RANK]
    read = {names[file] for file, r in zip(files, readings, strict=True) if r.samples}
    said = {names[file] for file, r in zip(files, readings, strict=True) if r.notes}
    silent = {*names.values()} - read - said
    if unread := sorted(name for name in silent if rank_in_name(name) != UNKNOWN_RANK):
        text = f"{count_of(len(unread), 'file')} of ranks without known stacks: {unread[0]}"
        notes.append(Note("info", str(root), f"{text}{' …' if unread[1:] else ''}"))
    if read.intersection(by_number):
        notes.append(Note("info", str(root), "ranks are taken from the numbers of the files"))
    return _finish([*readings, Reading(notes=tuple(notes))])


def parse_stacks(data: bytes, source: str) -> Reading:
    """Read stacks from bytes, such as a member of an archive; `source` may name the rank."""
    return _finish([_parse(data, source, rank_in_name(source), quiet=False)])


def _files_below(root: Path) -> tuple[list[Path], list[Note]]:
    found: list[Path] = []
    notes: list[Note] = []

    def closed(error: OSError) -> None:
        notes.append(Note("warning", str(error.filename), f"cannot be read: {error.strerror}"))

    for folder, below, names in os.walk(root, onerror=closed):
        depth = len(Path(folder).relative_to(root).parts)
        below[:] = sorted(name for name in below if depth < MAX_DEPTH and name[:1] != ".")
        found.extend(Path(folder, name) for name in sorted(names) if name[:1] != ".")
        if len(found) > MAX_FILES:
            notes.append(Note("warning", str(root), f"only the first {MAX_FILES} files are read"))
            return found[:MAX_FILES], notes
    return found, notes


def _read_file(
    path: Path,
    name: str,
    numbered: Mapping[str, int],
    alike: Alike | None = None,
    *,
    quiet: bool = False,
) -> Reading:
    try:
        data, cut = _bytes_of(path)
    except OSError as error:
        return Reading(notes=(Note("error", str(path), f"cannot be read: {reason(error)}"),))
    rank = rank_in_name(name)
    if rank == UNKNOWN_RANK:
        rank = numbered.get(name, UNKNOWN_RANK)
    if alike is not None and not cut and (known := _known(alike, data, name, rank)):
        return Reading(tuple(known))
    reading = _parse(data, str(path), rank, quiet=quiet)
    if not cut:
        return reading
    note = Note("warning", str(path), f"only the first {MAX_FILE_BYTES >> 20} MiB are read")
    return replace(reading, notes=(*reading.notes, note))


def _known(alike: Alike, data: bytes, name: str, rank: int) -> list[ProcessSample] | None:
    """The samples of a text like one before; None for all that its name tells more of."""
    if b"\0" in data[:_HEAD_BYTES] or host_in_name(name):
        return None
    return alike.samples(data.decode("utf-8", "replace"), rank)


def _alone(text: str, rank: int) -> Sequence[ProcessSample] | None:
    reading = _parse(text.encode(), "", rank, quiet=True)
    return None if reading.notes else reading.samples


def _bytes_of(path: Path) -> tuple[bytes, bool]:
    """Content of a regular file, and whether it was cut; a FIFO must not hold us up."""
    with open_regular(path) as file:
        data = file.read(_HEAD_BYTES)  # all of most: room for the most would be made each time
        if len(data) == _HEAD_BYTES:
            data += file.read(MAX_FILE_BYTES + 1 - _HEAD_BYTES)
    return data[:MAX_FILE_BYTES], len(data) > MAX_FILE_BYTES


def _parse(data: bytes, source: str, rank: int, *, quiet: bool) -> Reading:
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):  # as PowerShell's `>` writes it
        data = data.decode("utf-16", "replace").encode()
    if b"\0" in data[:_HEAD_BYTES]:
        notes = () if quiet else (Note("error", source, "is binary, not saved stacks"),)
        return Reading(notes=notes)
    samples: list[ProcessSample] = []
    notes_found: list[Note] = []
    pieces = [(each, format_of(each.text)) for each in split(data.decode("utf-8", "replace"))]
    strange = not any(known for _, known in pieces)
    for piece, known in pieces:
        if known is None:
            if (strange and not quiet) or piece.rank != UNKNOWN_RANK:
                notes_found.append(
                    Note("error", source, f"{_whose(piece)}holds no stacks of a known format")
                )
            continue
        try:
            found = known.parse(piece.text)
        except ValueError as error:
            notes_found.append(
                Note("error", source, f"{_whose(piece)}looks like {known.name}, but: {error}")
            )
            continue
        told = piece if piece.host else piece._replace(host=host_in_name(source))
        samples.extend(found if known.name == OURS else _placed(found, told, rank))
    bounded = [_bounded(sample) for sample in samples]
    if any(within is not sample for within, sample in zip(bounded, samples, strict=True)):
        notes_found.append(Note("warning", source, "very long stacks or texts were cut"))
    return Reading(tuple(bounded), tuple(notes_found))


def _whose(piece: Piece) -> str:
    return f"the part of rank {piece.rank} " if piece.rank != UNKNOWN_RANK else ""


def _placed(
    samples: Sequence[ProcessSample], piece: Piece, file_rank: int
) -> Iterator[ProcessSample]:
    """Give samples the rank and host that their piece or file names, and a role.

    Where one file holds a process and its children, the first that is no helper is the rank.
    """
    named = piece.rank if piece.rank != UNKNOWN_RANK else file_rank
    titled = ranks_of_titles({sample.pid: sample.command for sample in samples})
    owner = -1
    for sample in samples:
        own = sample.rank if sample.rank != UNKNOWN_RANK else titled.get(sample.pid, UNKNOWN_RANK)
        told = named if own == UNKNOWN_RANK else own
        role = "rank" if own != UNKNOWN_RANK else role_of_stack(sample)
        if role == "unknown" and (told == UNKNOWN_RANK or owner not in (-1, sample.pid)):
            role = "helper" if told != UNKNOWN_RANK else "unknown"
        elif role == "unknown":
            role, owner = "rank", sample.pid
        told = told if role != "engine" else UNKNOWN_RANK
        yield replace(
            sample,
            rank=told if role == "rank" else UNKNOWN_RANK,
            parent_rank=told if role in ("helper", "data-loader") else UNKNOWN_RANK,
            role=role,
            host=sample.host or piece.host,
        )


def _bounded(sample: ProcessSample) -> ProcessSample:
    threads = tuple(_bounded_thread(thread) for thread in sample.threads[:MAX_THREADS])
    command = without_secrets(sample.command[:MAX_TEXT])
    error = sample.error[:MAX_TEXT]
    whole = len(threads) == len(sample.threads) and all(map(is_, threads, sample.threads))
    if whole and (command, error) == (sample.command, sample.error):
        return sample
    return replace(sample, threads=threads, command=command, error=error)


def _bounded_thread(thread: ThreadStack) -> ThreadStack:
    frames = thread.frames[:MAX_FRAMES]  # of a tuple that is short enough, itself
    if any(len(f.function) > MAX_TEXT or len(f.file) > MAX_TEXT for f in frames):
        frames = tuple(Frame(f.function[:MAX_TEXT], f.file[:MAX_TEXT], f.line) for f in frames)
    if frames is thread.frames and len(thread.name) <= MAX_TEXT:
        return thread
    return replace(thread, frames=frames, name=thread.name[:MAX_TEXT])


def _finish(readings: Sequence[Reading]) -> Reading:
    """Put readings together; looks of one tool at one process are numbered in their order."""
    looks: defaultdict[tuple[int, int, str, int, str], list[ProcessSample]] = defaultdict(list)
    for reading in readings:
        for sample in reading.samples:
            key = (sample.rank, sample.parent_rank, sample.host, sample.pid, sample.tool)
            looks[key].append(sample)
    samples = [sample for key in sorted(looks) for sample in _numbered(looks[key])]
    return Reading(tuple(samples), tuple(note for r in readings for note in r.notes))


def _numbered(looks: list[ProcessSample]) -> list[ProcessSample]:
    known = looks[0].rank != UNKNOWN_RANK or looks[0].pid >= 0
    if not known or len({look.sample for look in looks}) == len(looks):
        return sorted(looks, key=lambda look: look.sample)
    ordered = sorted(looks, key=lambda look: (look.time_ns, look.sample))
    return [replace(look, sample=number) for number, look in enumerate(ordered)]
