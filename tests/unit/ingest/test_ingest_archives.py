"""Archives and compressed files: read in memory, bounded, and never written anywhere."""

from __future__ import annotations

import gzip
import io
import sys
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from makedumps import dump, of_rank, write

from lab.recorder.torchfile import encode_json, encode_pickle
from unhang.cli.main import main
from unhang.errors import MissingExtraError, NoEvidenceError
from unhang.ingest import load
from unhang.model import DumpStatus

CONTENT = {
    f"node0{r}/nccl_trace_rank_{r}": encode_pickle(of_rank(r, dump(ranks=3))) for r in range(3)
}


def tar(mode: str) -> Callable[[dict[str, bytes]], bytes]:
    """A maker of tars of one compression."""

    def make(content: dict[str, bytes]) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode=f"w:{mode}") as archive:
            for name, data in content.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        return buffer.getvalue()

    return make


def zipped(content: dict[str, bytes]) -> bytes:
    """A zip."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def zstd(data: bytes) -> bytes:
    """Compressed by zstandard."""
    zstandard = pytest.importorskip("zstandard")
    return bytes(zstandard.ZstdCompressor().compress(data))


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("dumps.tar", tar("")),
        ("dumps.tar.gz", tar("gz")),
        ("dumps.tgz", tar("gz")),
        ("dumps.tar.zst", lambda content: zstd(tar("")(content))),
        ("dumps.zip", zipped),
        ("no_extension", tar("gz")),
    ],
)
def test_archives(name: str, make: Callable[[dict[str, bytes]], bytes], tmp_path: Path) -> None:
    """Named alone or found in a folder; hosts and ranks come from the members' paths."""
    write(tmp_path, {name: make(CONTENT)})
    for path in (tmp_path / name, tmp_path):
        case = load(path)
        assert case.ranks_with_dump == (0, 1, 2)
        assert [d.host for d in case.dumps] == ["node00", "node01", "node02"]
        assert case.dumps[1].source == f"{tmp_path / name}!node01/nccl_trace_rank_1"


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_compressed_files(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """One dump a file, pickle or JSON, beside plain ones and inside archives."""
    write(
        tmp_path,
        {
            "rank_0.gz": pack(encode_pickle(dump())),
            "rank_1.json.gz": pack(encode_json(of_rank(1, dump()))),
            "rank_2": dump(),
            "more.tar": tar("")({"rank_3.gz": pack(encode_pickle(of_rank(3, dump())))}),
        },
    )
    assert load(tmp_path).ranks_with_dump == (0, 1, 2, 3)


def test_a_cut_gzip_keeps_whole_entries(tmp_path: Path) -> None:
    """What can be unpacked is read."""
    packed = gzip.compress(encode_pickle(dump(300)))
    write(tmp_path, {"rank_0.gz": packed[: len(packed) * 2 // 3], "rank_1.gz": packed[:15]})
    case = load(tmp_path)
    assert [d.status for d in case.dumps] == [DumpStatus.TRUNCATED, DumpStatus.UNREADABLE]
    assert 0 < len(case.calls) < 300


def test_a_cut_archive_keeps_what_came_before(tmp_path: Path) -> None:
    """Members before the damage are read, and the damage is said."""
    data = tar("")(CONTENT)
    write(tmp_path, {"dumps.tar": data[: len(data) // 3]})
    case = load(tmp_path)
    assert case.ranks_with_dump == (0,)
    assert any("dumps.tar" in n.source and n.level == "error" for n in case.notes)


def test_members_are_never_written(tmp_path: Path) -> None:
    """Paths that climb out, absolute paths and links are labels at most."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for rank, name in enumerate(("../../rank_0", "/etc/rank_1")):
            data = encode_pickle(of_rank(rank, dump()))
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("rank_2")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    write(tmp_path / "in", {"dumps.tar": buffer.getvalue()})
    assert load(tmp_path / "in").ranks_with_dump == (0, 1)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["dumps.tar", "in"]


@pytest.mark.parametrize(
    "make",
    [
        gzip.compress,
        lambda data: zipped({"rank_1": data}),
        lambda data: tar("gz")({"rank_1": data}),
    ],
)
def test_bombs_stay_packed(make: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """80 MB of zeros in 80 KB are no dump."""
    bomb = make(bytes(80 << 20))
    assert len(bomb) < 1 << 20
    write(tmp_path, {"rank_1": bomb, "rank_0": dump()})
    tracemalloc.start()
    case = load(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200 << 20
    assert case.ranks_with_dump == (0,)
    assert any("unpacks to more than" in n.text for n in case.notes)


@pytest.mark.parametrize("kind", ["tar.gz", "zip", "gz"])
def test_noise_behind_a_magic_number(kind: str, tmp_path: Path) -> None:
    """Broken archives are notes."""
    magic = {"tar.gz": b"\x1f\x8b\x08", "zip": b"PK\x03\x04", "gz": b"\x1f\x8b"}[kind]
    write(tmp_path, {f"rank_1.{kind}": magic + bytes(range(256)) * 4, "rank_0": dump()})
    case = load(tmp_path)
    assert case.ranks_with_dump == (0,)
    assert any(f"rank_1.{kind}" in n.source for n in case.notes)


def test_zstd_without_the_library_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an error where nothing else can be read, as a note where something can."""
    monkeypatch.setitem(sys.modules, "zstandard", None)
    write(tmp_path, {"a.tar.zst": b"\x28\xb5\x2f\xfd" + bytes(20)})
    with pytest.raises(MissingExtraError) as raised:
        load(tmp_path)
    assert "unhang[zstd]" in raised.value.hint
    write(tmp_path, {"rank_0": dump()})
    assert any("zstd" in n.text for n in load(tmp_path).notes)


def test_an_empty_archive_is_no_evidence(tmp_path: Path) -> None:
    """Nothing in it, nothing to judge."""
    write(tmp_path, {"dumps.tar": tar("")({})})
    with pytest.raises(NoEvidenceError):
        load(tmp_path)


@pytest.mark.parametrize("make", [zipped, tar("gz")], ids=["zip", "tar.gz"])
def test_other_evidence_in_an_archive_of_dumps_is_said(
    tmp_path: Path, make: Callable[[dict[str, bytes]], bytes]
) -> None:
    """An archive of a whole case: its dumps are judged, and what is left is no secret."""
    more = {"case/stacks/node01.json": b"{}", "case/logs/job.stderr.log": b"[rank0]: up\n"}
    write(tmp_path, {"case.tgz": make({**CONTENT, **more, "case/train.py": b"x = 1\n"})})
    case = load(tmp_path / "case.tgz")
    assert case.ranks_with_dump == (0, 1, 2)
    said = [note.text for note in case.notes if note.level == "warning"]
    assert len(said) == 1
    assert "2 files other than dumps not read" in said[0]


@pytest.mark.parametrize("make", [zipped, tar("gz")], ids=["zip", "tar.gz"])
@pytest.mark.parametrize("command", ["paste", "logs", "diagnose"])
def test_an_archive_of_texts_is_judged(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    make: Callable[[dict[str, bytes]], bytes],
    command: str,
) -> None:
    """Logs that somebody packed are read in memory, whichever command they are given to."""
    logs = {
        "run/rank_0.log": b"[rank0]: epoch 1\n",
        "../rank_1.log": b"[rank1]: Traceback (most recent call last):\n"
        b'[rank1]:   File "train.py", line 3, in <module>\n[rank1]: RuntimeError: boom\n',
        "run/train.py": b"raise RuntimeError('boom')\n",
        "run/core.bin": bytes(range(256)),
    }
    write(tmp_path / "in", {"logs.zip": make(logs)})
    assert main([command, str(tmp_path / "in" / "logs.zip")]) == 1
    out = capsys.readouterr().out
    assert "culprit    rank 1" in out
    assert "logs.zip!../rank_1.log" in "".join(out.split())  # long paths are broken
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["in", "logs.zip"]


def test_an_archive_that_was_cut_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was no lack of texts that kept them from being read."""
    write(tmp_path, {"logs.zip": zipped({"rank_0.log": b"[rank0]: epoch 1\n" * 99})[:60]})
    assert main(["paste", str(tmp_path / "logs.zip")]) == 3
    assert "cannot be read: it cannot be unpacked further" in capsys.readouterr().err
