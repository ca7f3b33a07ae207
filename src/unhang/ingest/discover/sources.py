"""Find the files that a user means: directories, files, globs, archives, case directories.

Only regular files are opened (torch leaves FIFOs next to its dumps), links to directories are not
followed, and everything that is passed over is counted and said.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from unhang.casedir.contents import MANIFEST
from unhang.casedir.reports import FOLDER, is_case
from unhang.globs import expanded
from unhang.ingest.discover.naming import looks_foreign, looks_like_dump, natural_key
from unhang.ingest.discover.sniff import CLOG_HEAD
from unhang.model import Note
from unhang.regular import leading_out, not_followed, open_regular

_MAX_FOLDER_DEPTH = 16
_HINT = "Name a directory of dumps, a case directory, files, a glob in quotes, or an archive."
_LOGS = (".log", ".txt")
_OUR_OWN = frozenset({MANIFEST, "report.json"})


@dataclass(frozen=True, slots=True)
class Source:
    """One file to read.

    Attributes:
        path: Where it is.
        relative: Path below what the user named, with "/"; a claim, never used for opening.
        size: In bytes, when it was found.
        mtime_ns: When it was last written.
    """

    path: str
    relative: str
    size: int
    mtime_ns: int


@dataclass(slots=True)
class Inputs:
    """Everything that the user's paths led to.

    Attributes:
        files: What may be dumps or archives of them.
        stacks, logs, traces, cores, reports, ras: Folders of a case directory, for the readers of
            these.
        manifests: Manifests of case directories.
        outside: Links in case directories that lead out of them; no reader follows one.
    """

    files: list[Source] = field(default_factory=list)
    stacks: list[Path] = field(default_factory=list)
    logs: list[Path] = field(default_factory=list)
    traces: list[Path] = field(default_factory=list)
    ras: list[Path] = field(default_factory=list)
    cores: list[Path] = field(default_factory=list)
    reports: list[Path] = field(default_factory=list)
    manifests: list[Path] = field(default_factory=list)
    outside: set[Path] = field(default_factory=set)
    notes: list[Note] = field(default_factory=list)

    @property
    def is_one_case(self) -> bool:
        """Whether the user named one case directory, with a manifest, and nothing else."""
        if len(self.manifests) != 1:
            return False
        case = f"{self.manifests[0].parent}{os.sep}"
        return all(source.path.startswith(case) for source in self.files)

    @property
    def has_more(self) -> bool:
        """Whether there is a case directory, with more than dumps."""
        more = (self.stacks, self.logs, self.traces, self.ras, self.cores, self.reports)
        return any(more) or bool(self.manifests)

    def warn(self, source: str, text: str) -> None:
        """Add a note about something that could not be read."""
        self.notes.append(Note("warning", source, text))


def find_inputs(paths: Iterable[str | os.PathLike[str]]) -> Inputs:
    """List the files behind the user's paths.

    Args:
        paths: Files, directories, globs and archives, in any mixture.

    Raises:
        InputError: One of them does not exist, or a glob matches nothing.
    """
    inputs = Inputs()
    for path in paths:
        for found in expanded(os.fspath(path), _HINT, natural_key):
            _add(found, inputs)
    return inputs


def may_be_dump(name: str) -> bool:
    """Whether a file that lies in a folder is opened: its name says nothing else of it."""
    return not looks_foreign(name) and name not in _OUR_OWN


def show_path(path: str) -> str:
    """A path that can be printed and encoded whatever bytes it consists of."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _add(path: str, inputs: Inputs) -> None:
    root = Path(path)
    if not os.path.isdir(root):  # noqa: PTH112 - without permission that is False, not an error
        inputs.files += _file(path, root.name, inputs)
        return
    if os.access(root, os.X_OK) and is_case(root):
        _add_case(root, inputs)
    else:
        inputs.files += sorted(_walk(path, "", inputs), key=lambda s: natural_key(s.relative))


def _add_case(root: Path, inputs: Inputs) -> None:
    """A case directory: each kind of evidence has its own folder and its own reader."""
    read = {
        "stacks": inputs.stacks,
        "logs": inputs.logs,
        "traces": inputs.traces,
        "ras": inputs.ras,
        "cores": inputs.cores,
        FOLDER: inputs.reports,
    }
    _leave_outside(root, (MANIFEST, "dumps", *read), inputs)
    manifest = root / MANIFEST
    if manifest.is_file() and manifest not in inputs.outside:
        inputs.manifests.append(manifest)
    elif os.path.lexists(manifest) and manifest not in inputs.outside:
        inputs.warn(show_path(str(manifest)), "not read: it is not a regular file")
    for name, folders in read.items():
        if root / name not in inputs.outside and _holds_something(root / name, inputs):
            folders.append(root / name)
    dumps = root / "dumps"
    if dumps not in inputs.outside and os.path.isdir(dumps):  # noqa: PTH112 - as above
        found = _walk(str(dumps), "dumps/", inputs)
        inputs.files += sorted(found, key=lambda s: natural_key(s.relative))


def _leave_outside(root: Path, names: Iterable[str], inputs: Inputs) -> None:
    """A stranger's case may hold a link to any file of this machine."""
    found = sorted(leading_out(root, names))
    inputs.outside.update(found)
    for note in not_followed(root, found, "case"):
        inputs.warn(show_path(note.source), note.text)


def _holds_something(folder: Path, inputs: Inputs) -> bool:
    try:
        return folder.is_dir() and any(folder.iterdir())
    except OSError as error:
        inputs.warn(show_path(str(folder)), f"the folder cannot be read: {error.strerror}")
        return False


def _walk(folder: str, prefix: str, inputs: Inputs) -> Iterator[Source]:
    """All regular files below a folder that may be dumps."""
    if prefix.count("/") > _MAX_FOLDER_DEPTH:
        inputs.warn(show_path(folder), "too many folders inside each other: not read")
        return
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        inputs.warn(show_path(folder), f"the folder cannot be read: {error.strerror}")
        return
    for entry in entries:
        relative = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, relative + "/", inputs)
        elif not _is_outside(entry, inputs) and (may_be_dump(entry.name) or _is_clog(entry)):
            yield from _file(entry.path, relative, inputs)


def _is_clog(entry: os.DirEntry[str]) -> bool:
    """Whether a log holds calls: Clog's files have any name, mostly that of a log."""
    if not entry.name.endswith(_LOGS):
        return False
    try:
        with open_regular(Path(entry.path)) as file:
            return file.read(len(CLOG_HEAD)) == CLOG_HEAD
    except OSError:
        return False


def _is_outside(entry: os.DirEntry[str], inputs: Inputs) -> bool:
    return bool(inputs.outside) and entry.is_symlink() and Path(entry.path) in inputs.outside


def _file(path: str, relative: str, inputs: Inputs) -> Iterator[Source]:
    try:
        stat = os.stat(path)  # noqa: PTH116 - a Path for each of 100,000 files costs a second
    except OSError as error:
        inputs.warn(show_path(path), f"the file cannot be read: {error.strerror}")
        return
    if S_ISREG(stat.st_mode):
        yield Source(path, show_path(relative), stat.st_size, stat.st_mtime_ns)
    elif looks_like_dump(relative) and not S_ISDIR(stat.st_mode):
        inputs.warn(show_path(path), "not read: it is not a regular file")
