"""A case is judged whatever else lies in it: every folder of it, every sort of disturbance."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import signal
import socket
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from makedumps import dump

from lab.recorder.torchfile import encode_pickle
from unhang import analysis
from unhang.case import Case
from unhang.ingest import load
from unhang.serve.past import tried

DUMPS = Path(__file__).parents[3] / "examples" / "never-joined-armed" / "dumps"
PLACES = {
    "dumps": "nccl_trace_rank_9",
    "dumps/gloo": "rank_9.json",
    "stacks": "rank9.txt",
    "logs": "rank9.log",
    "traces": "calls-9-99.0",
    "ras": "answer-9.txt",
    "cores": "core.9",
    "reports": "stacks-20250101T000000Z.json",
    "parts": "n9.json",
    "env": "n9.json",
    ".": "rank9.log",
}
"""Folders of a case, and how a file in them is called that their readers look for."""

OTHERS = [place for place in PLACES if not place.startswith(("dumps", "."))]
"""Without those that hold the evidence itself."""

INSTEAD = ("text", "fifo", "dangling link", "link to itself", "folder")

GOOD = b"[rank9]: RuntimeError: it broke\n" * 20_000
"""Long enough that half of what it is packed into is more than a header."""

ZSTD = zstandard.ZstdCompressor().compress(os.urandom(4_000) + GOOD)
GZIP = gzip.compress(os.urandom(4_000) + GOOD)


def archive(form: str) -> bytes:
    """An archive with one file."""
    made = io.BytesIO()
    if form == "zip":
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as out:
            out.writestr("nccl_trace_rank_9", GOOD)
        return made.getvalue()
    with tarfile.open(fileobj=made, mode=f"w:{form}") as out:
        info = tarfile.TarInfo("nccl_trace_rank_9")
        info.size = len(GOOD)
        out.addfile(info, io.BytesIO(GOOD))
    return made.getvalue()


def broken(data: bytes) -> bytes:
    """The same with its middle spoiled."""
    return data[:20] + b"\xff" * 40 + data[60:]


def text(data: bytes, suffix: str = "") -> Callable[[Path], None]:
    """Writes a file, under its usual name or with another ending."""
    return lambda path: (path.with_name(path.name + suffix).write_bytes(data), None)[1]


def folder(path: Path) -> None:
    """A folder by the name of a file, with something in it."""
    path.mkdir()
    (path / "README.txt").write_text("nothing to see\n")


def elsewhere(path: Path, data: bytes) -> Path:
    """A file by the same name that is none of the case."""
    case = next(each for each in path.parents if (each / "manifest.json").exists())
    other = case.parent / "elsewhere" / path.name
    other.parent.mkdir(exist_ok=True)
    other.write_bytes(data)
    return other


def unix_socket(path: Path) -> None:
    """A socket; its address has to be short."""
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def odd_names(path: Path) -> None:
    """Names that are no text, or more than one line."""
    for name in (b"\xff\xfe.log", b"rank\n9.log", b"-rank9.json", b"rank9\x1b[31m.txt"):
        Path(os.fsdecode(os.fsencode(path.parent) + b"/" + name)).write_text("nothing\n")


DISTURBANCES: dict[str, Callable[[Path], Any]] = {
    "readme": lambda path: (path.parent / "README.txt").write_text("hello\n"),
    "folder": folder,
    "folder beside": lambda path: folder(path.parent / "more"),
    "empty": text(b""),
    "text": text(b"hello\n"),
    "bytes": text(bytes(range(256)) * 64),
    "fifo": os.mkfifo,
    "socket": unix_socket,
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "link to a fifo": lambda path: (os.mkfifo(path.parent / "pipe"), path.symlink_to("pipe")),
    "link to a folder": lambda path: path.symlink_to(path.parent, target_is_directory=True),
    "link that leads out": lambda path: path.symlink_to(elsewhere(path, GOOD)),
    "link to a folder outside": lambda path: path.symlink_to(elsewhere(path, GOOD).parent),
    "odd names": odd_names,
    "json of another": text(b'{"schema": "other/1", "ranks": [1e999, NaN, {"rank": -1}]}'),
    "large number": text(b'{"schema": "unhang.report/1", "time_ns": 1' + b"0" * 400 + b"}"),
    **{
        f"{how} {form}": text(change(data), suffix)
        for how, change in (("cut", lambda data: data[: len(data) // 2]), ("broken", broken))
        for form, suffix, data in (
            ("zst", ".zst", ZSTD),
            ("gz", ".gz", GZIP),
            ("zip", ".zip", archive("zip")),
            ("tar", ".tar", archive("")),
            ("tar.gz", ".tar.gz", archive("gz")),
            ("tar.zst", ".tar.zst", zstandard.ZstdCompressor().compress(archive(""))),
        )
    },
}


@pytest.fixture(autouse=True)
def _an_end() -> Iterator[None]:
    """What waits for ever is a failure."""

    def waited(*_: object) -> None:
        pytest.fail("it waits for ever")

    before = signal.signal(signal.SIGALRM, waited)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def case(tmp_path: Path) -> Path:
    """A small case whose verdict is known."""
    root = tmp_path / "case"
    shutil.copytree(DUMPS, root / "dumps")
    (root / "manifest.json").write_text('{"schema": "unhang.case/1", "world_size": 4}')
    return root


def judged(case: Path) -> Case:
    """The case as it is read, once it is seen that its verdict is the one that is known."""
    loaded = load([case])
    report = analysis.diagnose(loaded)
    assert report.culprits == (2,)
    assert "Rank 2 never called" in report.summary
    return loaded


@pytest.mark.parametrize("disturbance", DISTURBANCES)
@pytest.mark.parametrize("place", PLACES)
def test_a_case_is_judged_whatever_lies_in_it(case: Path, place: str, disturbance: str) -> None:
    """And by the list of cases, too."""
    (case / place).mkdir(exist_ok=True)
    DISTURBANCES[disturbance](case / place / PLACES[place])
    judged(case)


@pytest.mark.parametrize("place", [*OTHERS, "manifest.json", "report.json"])
@pytest.mark.parametrize("disturbance", INSTEAD)
def test_a_case_is_judged_where_a_folder_is_something_else(
    case: Path, place: str, disturbance: str
) -> None:
    """A FIFO called logs, a folder called manifest.json."""
    (case / place).unlink(missing_ok=True)
    DISTURBANCES[disturbance](case / place)
    judged(case)
    past = tried(case)
    assert isinstance(past, str) or past.culprits == (2,)


READ = [place for place in PLACES if place not in ("parts", "env", ".")]
"""Folders that are read for evidence."""

SAID = (
    "empty", "text", "bytes", "fifo", "socket", "dangling link", "link to itself",
    "link to a device", "link that leads out", "cut zst", "cut gz", "broken zst", "broken gz",
)  # fmt: skip
"""What has the name of evidence and is none, or cannot be read."""


@pytest.mark.parametrize("disturbance", SAID)
@pytest.mark.parametrize("place", READ)
def test_evidence_that_is_not_read_is_said(case: Path, place: str, disturbance: str) -> None:
    """Once for each folder at least, and the log that cannot be read is not called empty."""
    (case / place).mkdir(exist_ok=True)
    DISTURBANCES[disturbance](case / place / PLACES[place])
    notes = [note.text for note in judged(case).notes if f"/case/{place}" in note.source]
    assert notes
    assert disturbance == "empty" or not any(text == "is empty" for text in notes)


def test_a_stray_readme_is_said_nowhere_as_a_loss(case: Path) -> None:
    """Beside evidence that is read."""
    before = judged(case).notes
    (case / "dumps" / "README.txt").write_text("hello\n")
    (case / "stacks").mkdir()
    (case / "stacks" / "README.txt").write_text("hello\n")
    assert judged(case).notes == before


PY_SPY = b"""Process 7: python train.py
Python v3.11.4 (/usr/bin/python3.11)

Thread 7 (idle): "MainThread"
    step (train.py:12)
"""
TRACE = b"# unhang trace 1 rank=9 pid=99 ppid=1 turn=0\n5 1 +1 train.py:3 step\n"
WELL = {"schema": "unhang.report/1", "status": "healthy", "summary": "well", "findings": []}

EVIDENCE = {
    "dumps": ("nccl_trace_rank_9", encode_pickle(dump(3, ranks=10))),
    "stacks": ("rank9.txt", PY_SPY),
    "logs": ("rank9.log", b"[rank9]: torch.OutOfMemoryError: CUDA out of memory.\n"),
    "traces": ("calls-9-99.0", TRACE),
    "reports": ("stacks-20250101T000000Z.json", json.dumps(WELL).encode()),
}
"""A file of each folder that its reader takes."""


def amounts(case: Path) -> list[int]:
    """How much of each sort of evidence is read."""
    read = load([case])
    return [
        len(found)
        for found in (read.dumps, read.samples, read.log_events, read.last_calls, read.reports)
    ]


@pytest.mark.parametrize("whole", [False, True], ids=["file", "folder"])
@pytest.mark.parametrize("place", EVIDENCE)
def test_a_link_that_leads_out_of_a_case_is_not_followed(
    case: Path, place: str, *, whole: bool
) -> None:
    """A stranger's case names no file of this machine; a copy of the same file is read."""
    name, data = EVIDENCE[place]
    before = amounts(case)
    link = case / place / ("more" if place == "dumps" else "") if whole else case / place / name
    other = elsewhere(case / place / name, data)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(other.parent if whole else other)
    judged(case)
    assert amounts(case) == before
    [note] = [note for note in load([case]).notes if note.source == str(link)]
    assert "leads out of the case" in note.text
    link.unlink()
    (case / place).mkdir(exist_ok=True)
    (case / place / name).write_bytes(data)
    assert amounts(case) != before


def test_a_link_inside_a_case_is_followed(case: Path) -> None:
    """Also where the case itself is named by a link."""
    (case / "logs").mkdir()
    (case / "kept").mkdir()
    name, data = EVIDENCE["logs"]
    (case / "kept" / name).write_bytes(data)
    (case / "logs" / name).symlink_to(Path("..", "kept", name))
    latest = case.parent / "latest"
    latest.symlink_to(case)
    assert judged(latest).log_events
    assert judged(case).log_events


def test_a_manifest_that_is_a_link_is_not_believed(case: Path) -> None:
    """It would tell what another file of this machine holds."""
    other = elsewhere(case / "manifest.json", (case / "manifest.json").read_bytes())
    (case / "manifest.json").unlink()
    (case / "manifest.json").symlink_to(other)
    notes = [note for note in load([case]).notes if note.source.endswith("manifest.json")]
    assert [note.level for note in notes] == ["warning"]


@pytest.mark.parametrize("place", ["traces", "ras", "cores", "logs"])
def test_what_cannot_be_read_is_said(case: Path, place: str) -> None:
    """A FIFO and a text beside evidence cost nothing, and are told."""
    (case / place).mkdir()
    (case / place / PLACES[place]).write_text("hello\n")
    os.mkfifo(case / place / PLACES[place].replace("9", "8"))
    notes = [note for note in judged(case).notes if place in note.source]
    assert notes, [note.source for note in judged(case).notes]


def test_what_is_whole_of_a_cut_log_is_read(case: Path) -> None:
    """Gzip was killed with the job."""
    (case / "logs").mkdir()
    lines = (
        b"[rank1]: RuntimeError: CUDA error: out of memory\n" + os.urandom(400_000).hex().encode()
    )
    for name, packed in (
        ("rank1.log.gz", gzip.compress(lines)),
        ("rank1.log.zst", zstandard.ZstdCompressor().compress(lines)),
    ):
        path = case / "logs" / name
        path.write_bytes(packed[: len(packed) * 3 // 4])
        loaded = load([case])
        path.unlink()
        assert loaded.log_events, name
        assert any("could not be read" in note.text for note in loaded.notes), name
