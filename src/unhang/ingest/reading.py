"""From one file to what it holds: sniff, unpack, decode; whatever goes wrong becomes a status.

The order of readers is fixed by the file's first bytes alone. A file that is no dump counts as a
rank's lost dump only where its name is a dump's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.case import BY_LAST_CALLS
from unhang.errors import MissingExtraError
from unhang.ingest.columns.decoded import BadDump, Decoded, LostDumpError
from unhang.ingest.columns.dictionaries import Dictionaries
from unhang.ingest.columns.dumpfiles import DumpFile
from unhang.ingest.columns.normalise import normalise
from unhang.ingest.discover.naming import (
    looks_foreign,
    looks_like_dump,
    looks_like_evidence,
    read_name,
)
from unhang.ingest.discover.sniff import HEAD_BYTES, MAX_FILE_BYTES, FileKind, kind_of
from unhang.ingest.discover.sources import Source, show_path
from unhang.ingest.handed import NamedBytes
from unhang.ingest.native.loading import NativeReader, native_reader
from unhang.model import DumpStatus, Note
from unhang.regular import open_regular, reason
from unhang.wording import count_of

if TYPE_CHECKING:
    from unhang.ingest.parts.reading import PartReader

_OF_OTHERS = (FileKind.PART, FileKind.PAGE, FileKind.CLOG)

Progress = Callable[[int, int], None]
"""Called with the bytes read so far and the bytes in all."""


@dataclass(slots=True)
class Reader:
    """Reads the files of one case one after the other."""

    shared: Dictionaries
    pattern: re.Pattern[str] | None = None
    progress: Progress | None = None
    notes: list[Note] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    missing: MissingExtraError | None = None
    native: NativeReader | None = None
    parts: PartReader | None = None
    lost_parts: int = 0

    def read_all(self, sources: list[Source]) -> Iterator[DumpFile]:
        """Read every file; those that are no dumps are passed over."""
        total, done = sum(source.size for source in sources), 0
        size = sum(s.size for s in sources if s.size <= MAX_FILE_BYTES)
        self.native = native_reader(size, self.shared, self.notes)
        batches = (
            self.native.read(sources) if self.native else ([(source, None)] for source in sources)
        )
        for batch in batches:
            for source, decoded in batch:
                if decoded is None:
                    yield from self.read(source)
                else:
                    yield self.loaded(
                        show_path(source.path), source.relative, source.mtime_ns, decoded
                    )
                done += source.size
            if self.progress is not None:
                self.progress(done, total)

    def read(self, source: Source) -> Iterator[DumpFile]:
        """Read one file, or all members of an archive."""
        shown = show_path(source.path)
        try:
            with open_regular(source.path) as file:
                kind = kind_of(file.read(HEAD_BYTES))
                if kind.is_packed:
                    yield from self.unpack(source, kind)
                    return
                if source.size > MAX_FILE_BYTES or kind is FileKind.OTHER:
                    problem = "it is larger than any dump" if kind is not FileKind.OTHER else ""
                    yield from self.lost(shown, source.relative, source.mtime_ns, problem)
                    return
                file.seek(0)
                data = file.read(source.size)
        except OSError as error:
            problem = f"it cannot be read: {reason(error)}"
            yield from self.lost(shown, source.relative, source.mtime_ns, problem)
            return
        yield from self.decode(shown, source.relative, source.mtime_ns, data, is_new=False)

    def read_handed(self, dumps: Iterable[NamedBytes]) -> Iterator[DumpFile]:
        """Read dumps that are in memory."""
        for name, data in dumps:
            yield from self.decode(name, name, 0, data)

    def unpack(self, source: Source, kind: FileKind) -> Iterator[DumpFile]:
        """Read an archive, or the one file in a compressed file."""
        from unhang.ingest.discover.archives import BadArchive, is_tar_inside, members_of

        shown, path = show_path(source.path), Path(source.path)
        try:
            if kind in (FileKind.GZIP, FileKind.ZSTD) and not is_tar_inside(path, kind):
                yield from self.compressed(source, kind)
                return
            others: list[str] = []

            def wanted(name: str) -> bool:
                if looks_like_evidence(name):
                    others.append(name)
                return not looks_foreign(name.rpartition("/")[2])

            for member in members_of(path, kind, wanted):
                label = f"{shown}!{show_path(member.path)}"
                relative = f"{source.relative}/{show_path(member.path)}"
                if member.data is None:
                    yield from self.lost(label, relative, member.mtime_ns, member.problem)
                else:
                    yield from self.decode(label, relative, member.mtime_ns, member.data)
            if others:
                text = f"{count_of(len(others), 'file')} other than dumps not read, such as"
                text += f" {show_path(others[0])}: unpack the archive, and diagnose its folder"
                self.notes.append(Note("warning", shown, text))
        except BadArchive as error:
            self.notes.append(Note("error", shown, str(error)))
        except MissingExtraError as error:
            self.missing = error
            self.notes.append(Note("error", shown, f"{error.message} {error.hint}"))

    def compressed(self, source: Source, kind: FileKind) -> Iterator[DumpFile]:
        """Read the one file in a compressed file; keeps what is whole of a cut one."""
        from unhang.ingest.discover.archives import BadArchive, inflate

        shown = show_path(source.path)
        try:
            with open_regular(source.path) as file:
                data, cut = inflate(file.read(min(source.size, MAX_FILE_BYTES)), kind)
        except (BadArchive, OSError) as error:
            if not self.is_dump_name(source.relative):
                self.notes.append(Note("error", shown, str(error)))
            yield from self.lost(shown, source.relative, source.mtime_ns, str(error))
            return
        for loaded in self.decode(shown, source.relative, source.mtime_ns, data):
            if cut and loaded.status is DumpStatus.OK:
                loaded.status, loaded.problem = (
                    DumpStatus.TRUNCATED,
                    "its compressed data ends early",
                )
            yield loaded

    def decode(
        self, shown: str, relative: str, mtime_ns: int, data: bytes, *, is_new: bool = True
    ) -> Iterator[DumpFile]:
        """Decode the bytes of one file; unless the compiled decoder has left it, that is first."""
        kind = kind_of(data[:HEAD_BYTES])
        claim = read_name(relative, self.pattern)
        if kind is FileKind.EMPTY:
            if self.is_dump_name(relative):
                yield DumpFile(
                    shown,
                    claim,
                    mtime_ns,
                    DumpStatus.EMPTY,
                    problem="it is empty",
                    relative=relative,
                )
            else:
                self.passed_over.append(shown)
            return
        if kind in _OF_OTHERS:
            yield from self.of_others(kind, shown, relative, mtime_ns, data)
            return
        if kind not in (FileKind.PICKLE, FileKind.JSON):
            yield from self.lost(shown, relative, mtime_ns, "")
            return
        from unhang.ingest.jsonfile import BadJson
        from unhang.ingest.pickles.unpickle import BadPickle

        try:
            decoded = self.native.read_bytes(data) if self.native and is_new else None
            if decoded is None:
                decoded = decode_bytes(data, kind, self.shared)
        except (BadPickle, BadJson, LostDumpError) as error:
            yield from self.lost(shown, relative, mtime_ns, str(error))
        except BadDump:
            self.passed_over.append(shown)
        else:
            yield self.loaded(shown, relative, mtime_ns, decoded)

    def of_others(
        self, kind: FileKind, shown: str, relative: str, mtime_ns: int, data: bytes
    ) -> Iterable[DumpFile]:
        """What is no dump of torch's, and holds as much."""
        if kind is FileKind.PART:
            return self.of_part(shown, data)
        if kind is FileKind.PAGE:
            return self.of_page(shown, relative, mtime_ns, data)
        return self.of_clog(shown, relative, data)

    def of_part(self, shown: str, data: bytes) -> list[DumpFile]:
        """The dumps of a part; their rows come with `take_parts`."""
        from unhang.ingest.parts.layout import BadPart
        from unhang.ingest.parts.reading import PartReader

        self.parts = self.parts or PartReader(self.shared, self.pattern)
        try:
            return self.parts.read(data)
        except BadPart as error:
            self.notes.append(Note("error", shown, f"the part cannot be read: {error}"))
            self.lost_parts += 1
            return []

    def of_page(self, shown: str, relative: str, mtime_ns: int, data: bytes) -> Iterator[DumpFile]:
        """What a heartbeat's file tells of the last calls of its rank, a backend at a time."""
        from unhang.ingest.pages.pagedump import dumps_of

        claim = read_name(relative, self.pattern)

        def file(status: DumpStatus, decoded: Decoded | None, problem: str) -> DumpFile:
            return DumpFile(
                shown, claim, mtime_ns, status, decoded, problem, relative=relative, is_page=True
            )

        try:
            for found in dumps_of(data):
                decoded = normalise(found.value, self.shared, len(data))
                decoded.reported_by, decoded.truncated = BY_LAST_CALLS, bool(found.problem)
                status = DumpStatus.TRUNCATED if found.problem else DumpStatus.OK
                yield file(status, decoded, found.problem)
        except BadDump as error:
            yield file(DumpStatus.UNREADABLE, None, str(error))

    def of_clog(self, shown: str, relative: str, data: bytes) -> Iterator[DumpFile]:
        """What Clog logged; its file is written at each call, so its time tells no call's age."""
        from unhang.ingest.pages.clog import decode_clog

        try:
            yield self.loaded(shown, relative, 0, decode_clog(data, self.shared))
        except LostDumpError:
            self.passed_over.append(shown)

    def take_parts(self, found: Sequence[DumpFile]) -> None:
        """Make the rows of what was read in parts, and take over what was said there.

        Args:
            found: All files that were read, dumps next to the parts as well.
        """
        if self.parts is None:
            return
        self.notes += dict.fromkeys(self.parts.notes)  # parts of one case say some things alike
        self.passed_over += self.parts.passed_over
        filling = self.parts.filling
        of_parts = {id(each.decoded) for each in filling.dumps}
        others = any(
            item.decoded is not None and item.decoded.count and id(item.decoded) not in of_parts
            for item in found
        )
        versions = all(each.decoded.version for each in filling.dumps)
        filling.fill(may_shorten=versions and not others)
        if filling.shortened:
            kept = sum(each.decoded.count for each in filling.dumps)
            every = sum(len(each.sequel) for each in filling.dumps)
            text = (
                f"of {every:,} calls the last {kept:,} of each rank and group are looked at; the "
                "others of ranks about which a verdict asks"
            )
            self.notes.append(Note("info", "parts", text))

    def loaded(self, shown: str, relative: str, mtime_ns: int, decoded: Decoded) -> DumpFile:
        """A file that was decoded, at least in part."""
        claim = read_name(relative, self.pattern)
        if not decoded.truncated:
            return DumpFile(shown, claim, mtime_ns, DumpStatus.OK, decoded, relative=relative)
        problem = f"it was cut short after {count_of(decoded.count, 'whole call')}"
        return DumpFile(
            shown, claim, mtime_ns, DumpStatus.TRUNCATED, decoded, problem, relative=relative
        )

    def lost(self, shown: str, relative: str, mtime_ns: int, problem: str) -> Iterator[DumpFile]:
        """A file that gave nothing: a lost dump if it is called like one."""
        if self.is_dump_name(relative):
            problem = problem or "it is neither a pickle nor JSON"
            claim = read_name(relative, self.pattern)
            yield DumpFile(
                shown, claim, mtime_ns, DumpStatus.UNREADABLE, problem=problem, relative=relative
            )
        else:
            self.passed_over.append(shown)

    def is_dump_name(self, relative: str) -> bool:
        """Whether a file by this name is a dump: by the user's pattern, or by the usual forms."""
        if self.pattern is not None:
            return read_name(relative, self.pattern).rank >= 0
        return looks_like_dump(relative)


def decode_bytes(data: bytes, kind: FileKind, shared: Dictionaries) -> Decoded:
    """Decode a pickle or JSON dump with the Python reader.

    Raises:
        BadPickle, BadJson: The file is malformed.
        LostDumpError: What is left of it, or what it refers to, is no use.
        BadDump: It is something else than a dump.
    """
    from unhang.ingest.jsonfile import parse
    from unhang.ingest.pickles.unpickle import unpickle

    value, truncated = unpickle(data) if kind is FileKind.PICKLE else parse(data)
    try:
        decoded = normalise(value, shared, len(data))
    except BadDump as error:
        if truncated:
            raise LostDumpError("it was cut short before its groups and calls") from error
        raise
    if truncated and not decoded.tells_of_calls:
        raise LostDumpError("it was cut short before its first whole call")
    decoded.truncated = truncated
    return decoded
