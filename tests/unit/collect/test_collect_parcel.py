from __future__ import annotations

import io
import os
import tarfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unhang.collect import parcel
from unhang.collect.node import main as node
from unhang.collect.parcel import Incoming, ParcelError, read_line, safe_node, unpack, write_parcel
from unhang.collect.processes import ProcessTable


def sent(files: dict[str, bytes | Path], node: str = "node01") -> list[str]:
    """The lines of a parcel."""
    out = io.StringIO()
    write_parcel(files, "run1", node, out)
    return out.getvalue().splitlines()


def received(lines: list[str]) -> io.BytesIO:
    """What a receiver makes of lines, which are passed on in order."""
    file = io.BytesIO()
    incoming = Incoming(file)
    for line in lines:
        words = read_line(line, "run1")
        if words:
            incoming.add(*words[1:])
    assert incoming.whole
    file.seek(0)
    return file


names = st.from_regex(r"\A(dumps|stacks|logs|env)(/[a-z0-9_]{1,9}){1,3}\Z")


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(names, st.binary(max_size=9_000), max_size=4))
def test_what_is_sent_arrives(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    """Whatever the content, through labels and noise, every file is there as it was."""
    if any(a != b and b.startswith(f"{a}/") for a in files for b in files):
        return  # a file cannot be a folder too
    lines = [f"{i % 3}: {line}" for i, line in enumerate(sent(dict(files)))]
    noise = [line for pair in zip(lines, ["Welcome!"] * len(lines), strict=True) for line in pair]
    case = tmp_path_factory.mktemp("case")
    written, part = unpack(received(noise), case)
    assert {name: (case / name).read_bytes() for name in written} == files
    assert part == b""


def test_all_that_a_node_sends_is_let_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One file of a folder that is not let in would cost all of the node's evidence."""
    monkeypatch.setattr(node, "read_processes", lambda: ProcessTable.of(()))
    monkeypatch.setattr(node, "take_ras", lambda _: [b"an answer\n"])
    monkeypatch.setattr(node, "take_system", lambda _: {"node.json": b"{}\n"})
    monkeypatch.setattr(node, "take_logs", lambda *_: ({"rank_0.log": b"a line\n"}, []))
    node.main('{"run": "run1", "node": "n1", "what": ["env", "logs"]}')
    written, part = unpack(received(capsys.readouterr().out.splitlines()), tmp_path)
    assert set(written) == {"env/n1/node.json", "logs/n1/rank_0.log", "ras/answer-n1-0.txt"}
    assert b'"notes"' in part


def test_lines_are_short_enough_not_to_mix() -> None:
    """Pipes keep writes of 4,096 bytes whole, `srun --label` lines of 1,024."""
    lines = sent({"dumps/nccl/rank_0": os.urandom(50_000)}, "n" * 100)
    assert max(map(len, lines)) < 1_000


def test_lines_of_other_runs_and_nonsense_are_passed_over() -> None:
    """Only lines of this run count; a forged one has no name that fits."""
    (line, *_) = sent({"part.json": b"{}"})
    assert read_line(line, "run1") is not None
    assert read_line(line, "run2") is None
    assert read_line("@unhang run1 node x y", "run1") is None
    assert read_line("hello", "run1") is None


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda lines: lines[1:], "line 0 was lost"),
        (lambda lines: [lines[0], *lines[2:]], "line 1 was lost"),
        (lambda lines: [lines[0].replace(lines[0].split()[4], "A" * 8), *lines[1:]], "not what"),
        (lambda lines: [lines[0][:-2] + "$$", *lines[1:]], "was damaged"),
        (lambda lines: lines[-1:], "not what was sent"),
    ],
)
def test_lost_and_damaged_lines_are_noticed(spoil: object, words: str) -> None:
    """The checksum and the numbers tell; half a parcel is none."""
    lines = sent({"dumps/nccl/rank_0": os.urandom(9_000)})
    with pytest.raises(ParcelError, match=words):
        received(spoil(lines))  # type: ignore[operator]  # a function of the table


def packed(*members: tarfile.TarInfo) -> io.BytesIO:
    """A compressed tar of these members."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(b"x" * member.size))
    return io.BytesIO(zlib.compress(raw.getvalue()))


def member(name: str, **fields: object) -> tarfile.TarInfo:
    """A member with a name."""
    info = tarfile.TarInfo(name)
    info.size = 1
    for key, value in fields.items():
        setattr(info, key, value)
    return info


@pytest.mark.parametrize(
    "bad",
    [
        member("../evil"),
        member("dumps/../../evil"),
        member("/etc/passwd"),
        member("report.json"),
        member("dumps"),
        member("dumps/a/b/c/d/e/f"),
        member("dumps/a b"),
        member("dumps/link", type=tarfile.SYMTYPE, linkname="/etc/passwd", size=0),
        member("dumps/link", type=tarfile.LNKTYPE, linkname="../x", size=0),
        member("dumps/fifo", type=tarfile.FIFOTYPE, size=0),
        member("dumps/device", type=tarfile.CHRTYPE, size=0),
    ],
    ids=lambda bad: f"{bad.name}-{bad.type!r}",
)
def test_what_no_node_sends_is_refused(tmp_path: Path, bad: tarfile.TarInfo) -> None:
    """No way out of the case, no links, no devices."""
    case = tmp_path / "case"
    case.mkdir()
    with pytest.raises(ParcelError, match="which no node sends"):
        unpack(packed(bad), case)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["case"]


@pytest.mark.parametrize("data", [b"", b"nonsense", zlib.compress(b"no tar at all" * 100)])
def test_rubbish_is_refused(tmp_path: Path, data: bytes) -> None:
    """No zlib, no tar, nothing at all: an error that says so."""
    with pytest.raises(ParcelError, match="cannot be unpacked"):
        unpack(io.BytesIO(data), tmp_path)


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What unpacks to more than is allowed ends before it fills the disk."""
    monkeypatch.setattr(parcel, "MAX_UNPACKED", 1 << 20)
    bomb = packed(member("dumps/nccl/rank_0", size=4 << 20))
    with pytest.raises(ParcelError, match="unpacks to more"):
        unpack(bomb, tmp_path)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """A second file of one name gets a number."""
    files: dict[str, bytes | Path] = {"dumps/nccl/rank_0": b"one"}
    unpack(received(sent(files)), tmp_path)
    written, _ = unpack(received(sent({"dumps/nccl/rank_0": b"two"})), tmp_path)
    assert written == ["dumps/nccl/rank_0.2"]
    assert (tmp_path / "dumps/nccl/rank_0").read_bytes() == b"one"


def test_files_are_sent_from_where_they_are(tmp_path: Path) -> None:
    """A file that shrinks is filled up, one that vanished is left out; the rest arrives."""
    (tmp_path / "dump").write_bytes(b"x" * 5_000)
    files: dict[str, bytes | Path] = {
        "dumps/nccl/rank_0": tmp_path / "dump",
        "dumps/nccl/rank_1": tmp_path / "gone",
        "part.json": b"{}",
    }
    case = tmp_path / "case"
    case.mkdir()
    written, part = unpack(received(sent(files)), case)
    assert (written, part) == (["dumps/nccl/rank_0"], b"{}")


@pytest.mark.parametrize(
    ("name", "safe"),
    [("node01.cluster", "node01.cluster"), ("a b/../c", "a_b_.._c"), ("..", "node"), ("", "node")],
)
def test_names_of_nodes_fit_into_lines_and_paths(name: str, safe: str) -> None:
    """No blanks, no slashes, never empty."""
    assert safe_node(name) == safe


@pytest.mark.parametrize("name", ["../../../EVIL", "/etc/EVIL", "a/../..", ".."])
def test_what_a_node_calls_itself_is_no_path(name: str) -> None:
    """A line's node is made safe where the line is taken apart."""
    words = read_line(f"@unhang run1 {name} 0 AAAA", "run1")
    assert words is not None
    assert "/" not in words[0]
    assert words[0].strip(".")


def sparse() -> tarfile.TarInfo:
    """A file of one byte that claims to be one of 1 TiB with a hole."""
    info = member("dumps/nccl/rank_0", size=512)
    info.pax_headers = {
        "GNU.sparse.major": "0",
        "GNU.sparse.minor": "1",
        "GNU.sparse.map": "0,1",
        "GNU.sparse.size": str(1 << 40),
    }
    return info


@pytest.mark.parametrize(
    "members",
    [
        [member("part.json", size=(4 << 20) + 1)],
        [member("part.json"), member("part.json")],
        [member("dumps/a/x"), member("dumps/a/x")],
        [member("dumps/" + "é" * 200)],
        [sparse()],
    ],
    ids=["large-part", "two-parts", "twice", "long-name", "sparse"],
)
def test_what_would_not_fit_is_refused(tmp_path: Path, members: list[tarfile.TarInfo]) -> None:
    """A node sends each file once, whole, and a small description of itself."""
    with pytest.raises(ParcelError, match="which no node sends"):
        unpack(packed(*members), tmp_path)


def test_what_is_said_of_a_file_is_short(tmp_path: Path) -> None:
    """A header of gigabytes is a few kilobytes on the wire; it is not read into memory."""
    info = member("dumps/nccl/rank_0")
    info.pax_headers = {"comment": "x" * (3 << 20)}
    with pytest.raises(ParcelError, match="longer than any node says"):
        unpack(packed(info), tmp_path)


def test_files_and_folders_do_not_get_into_each_others_way(tmp_path: Path) -> None:
    """A node that sends a file where others have a folder costs the others nothing."""
    unpack(packed(member("dumps/gloo")), tmp_path)
    written, _ = unpack(packed(member("dumps/gloo/rank_0")), tmp_path)
    again, _ = unpack(packed(member("dumps/gloo/rank_0/x")), tmp_path)
    assert written == ["dumps/gloo.2/rank_0"]
    assert again == ["dumps/gloo.2/rank_0.2/x"]
