from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from unhang.cli.main import main
from unhang.collect.redaction import redact_case
from unhang.errors import InputError, OutputError
from unhang.ingest import load
from unhang.model import Frame, ProcessSample, ThreadStack
from unhang.redact import Redactor
from unhang.stacks.formats.saved import write_samples

SITE = "/home/marvin/secret-project/train.py"
NAMES = ("gpu-rack7", "marvin", "secret-project", "10.20.30.40", "hunter2xyz")


def dump(rank: int) -> dict[str, Any]:
    """A dump as torch writes it, with one call."""
    return {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "pg_status": {"0": {"last_enqueued_collective": 1, "last_started_collective": 1,
                            "last_completed_collective": rank}},
        "entries": [
            {
                "frames": [{"name": "step", "filename": SITE, "line": 88}],
                "record_id": 0, "pg_id": 0, "process_group": ("0", "default_pg"),
                "collective_seq_id": 1, "p2p_seq_id": 0, "op_id": 1,
                "profiling_name": "nccl:all_reduce", "time_created_ns": 1, "input_sizes": [[4]],
                "input_dtypes": ["Float"], "output_sizes": [[4]], "output_dtypes": ["Float"],
                "state": "started", "time_discovered_started_ns": None,
                "time_discovered_completed_ns": None, "retired": False, "timeout_ms": 1000,
                "is_p2p": False,
            }
        ],
    }  # fmt: skip


@pytest.fixture
def case(tmp_path: Path) -> Path:
    """A case with a name in every kind of file."""
    root = tmp_path / "case"
    for folder in ("dumps/nccl", "stacks", "logs/gpu-rack7", "env/gpu-rack7"):
        (root / folder).mkdir(parents=True)
    for rank in range(2):
        (root / "dumps" / "nccl" / f"rank_{rank}").write_bytes(pickle.dumps(dump(rank), protocol=2))
    stack = (Frame("load", SITE, 31),)
    sample = ProcessSample(0, "gpu-rack7", 5, (ThreadStack("MainThread", 5, stack, is_main=True),))
    write_samples(root / "stacks" / "gpu-rack7.json", [sample])
    (root / "logs" / "gpu-rack7" / "rank_0.out").write_text(
        "user=marvin connecting to 10.20.30.40 from gpu-rack7\nAPI_KEY=hunter2xyz\n"
    )
    (root / "env" / "gpu-rack7" / "node.json").write_text(
        '{"host": "gpu-rack7", "cwd": "/home/marvin"}'
    )
    (root / "manifest.json").write_text(
        json.dumps({"world_size": 2, "ranks": {"0": {"came": {"stacks": "stacks/gpu-rack7.json"}}}})
    )
    (root / "ras").mkdir()
    answer = "NCCL version 2.24.3\nJob summary\n 1 node on gpu-rack7 at 10.20.30.40, marvin\n"
    (root / "ras" / "answer-gpu-rack7-1.txt").write_text(answer)
    (root / "collect.json").write_text('{"options": {"hosts": "gpu-rack7"}}')
    return root


def test_no_name_is_left_anywhere(case: Path, tmp_path: Path) -> None:
    """Not in dumps, stacks, logs, environment, manifest, nor in the names of files."""
    target = tmp_path / "clean"
    done = redact_case(case, target, Redactor())
    assert done.left_out == {}
    assert "NCCL version 2.24.3" in next((target / "ras").iterdir()).read_text()
    for path in target.rglob("*"):
        told = str(path.relative_to(target))
        content = path.read_bytes() if path.is_file() else b""
        for name in NAMES:
            assert name not in told
            assert name.encode() not in content, (told, name)
    assert not (target / "collect.json").exists()
    assert "1 secret" in (target / "redaction.txt").read_text()


def test_the_copy_tells_the_same_story(case: Path, tmp_path: Path) -> None:
    """Ranks, calls, lines and files are as they were; references still fit."""
    target = tmp_path / "clean"
    redact_case(case, target, Redactor())
    before, after = load(case), load(target)
    assert len(after.calls) == len(before.calls) == 2
    assert after.calls.seq.tolist() == before.calls.seq.tolist()
    (frame,) = after.stacks.frames
    assert (frame.function, frame.line, frame.file.rpartition("/")[2]) == ("step", 88, "train.py")
    assert after.samples[0].threads[0].frames[0].file == frame.file
    stacks = json.loads((target / "manifest.json").read_text())["ranks"]["0"]["came"]["stacks"]
    assert (target / stacks).is_file()
    assert after.samples[0].host == Path(stacks).stem


def test_what_cannot_be_cleaned_is_left_out(case: Path, tmp_path: Path) -> None:
    """Binaries, archives and broken dumps are not copied, and it is said why."""
    (case / "dumps" / "nccl" / "rank_2").write_bytes(pickle.dumps(dump(0), protocol=2)[:-40])
    (case / "logs" / "core").write_bytes(b"\x7fELF\0marvin")
    (case / "logs" / "old.gz").write_bytes(b"\x1f\x8b\x08\0marvin")
    done = redact_case(case, tmp_path / "clean", Redactor())
    assert sorted(done.left_out) == ["dumps/nccl/rank_2", "logs/core", "logs/old.gz"]
    assert "left out: logs/core" in (tmp_path / "clean" / "redaction.txt").read_text()


def test_what_nobody_knows_is_left_out_or_dropped(case: Path, tmp_path: Path) -> None:
    """Files of no known kind, damaged JSON, links; bytes, options, variables in the others."""
    (case / "notes.md").write_text("plan9")
    (case / "report.html").write_text("<p>plan9</p>")
    (case / "env" / "cut.json").write_text('{"a": "plan9')
    (case / "logs" / "link").symlink_to(case / "notes.md")
    (case / "logs" / "late").write_bytes(b"x" * 5000 + b"\0plan9")
    odd = {"environment": {"NCCL_DEBUG": "INFO", "RAY_X": "plan9", "RANK": "3"}}
    (case / "dumps" / "nccl" / "rank_2").write_bytes(pickle.dumps(odd, protocol=2))
    command = ["python", "train.py", "--name", "plan9", "--lr=0.1", "run=plan9"]
    (case / "parts").mkdir()
    (case / "parts" / "a.json").write_text(json.dumps({"command": command}))
    (case / "logs" / "lines.json").write_text('{"msg": 1, "password": "plan9"}\n{"msg": 2}\n')
    assert Redactor().value({"blob": b"plan9"}) == {"blob": b"<dropped>"}
    target = tmp_path / "clean"
    done = redact_case(case, target, Redactor())
    assert sorted(done.left_out) == [
        "env/cut.json", "logs/late", "logs/link", "notes.md", "report.html",
    ]  # fmt: skip
    left = [path for path in target.rglob("*") if path.is_file() and b"plan9" in path.read_bytes()]
    assert left == []
    clean = json.loads((target / "parts" / "a.json").read_text())["command"]
    assert clean == ["python", "train.py", "--name", "<dropped>", "--lr=0.1", "run=<dropped>"]
    kept = pickle.loads((target / "dumps" / "nccl" / "rank_2").read_bytes())["environment"]  # noqa: S301 - our own
    assert kept == {"NCCL_DEBUG": "INFO", "RAY_X": "<dropped>", "RANK": "3"}
    assert (target.stat().st_mode | (target / "manifest.json").stat().st_mode) & 0o077 == 0


def test_it_never_overwrites(case: Path, tmp_path: Path) -> None:
    """A target that is there, and a case that is not, are refused."""
    with pytest.raises(OutputError, match="exists already"):
        redact_case(case, tmp_path, Redactor())
    with pytest.raises(InputError, match="holds no files"):
        redact_case(tmp_path / "none", tmp_path / "clean", Redactor())


def test_the_command_says_what_was_replaced(
    case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Numbers, no names; and it collects nothing."""
    code = main(["collect", "--redact", str(case), "--case", str(tmp_path / "clean")])
    told = capsys.readouterr().out
    assert code == 0
    assert "Replaced: " in told
    assert "gpu-rack7" not in told
    assert main(["collect", "--redact", str(case), "--slurm", "1"]) == 2


DEPTH = 100_000
KEY = b"X\x04\x00\x00\x00junk"
ENDLESS = {
    "nested lists": KEY + b"]" + b"](" * DEPTH + b"K\x01" + b"e" * DEPTH,
    "nested dicts": KEY + b"}" + b"X\x01\x00\x00\x00a}" * DEPTH + b"s" * DEPTH,
    "list in itself": KEY + b"]q\xf0h\xf0a",
    "dict in itself": KEY + b"}q\xf0X\x01\x00\x00\x00ah\xf0s",
    "entries in themselves": b"X\x07\x00\x00\x00entries]q\xf0h\xf0a",
    "twice as much forty times": KEY + b"]" + b"q\xf0](h\xf0h\xf0e" * 40,
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_values_without_an_end(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Depth beyond the stack, and walks that would never end: a verdict, and a copy without it."""
    folder = tmp_path / "case" / "dumps"
    folder.mkdir(parents=True)
    whole = pickle.dumps(dump(1), protocol=2)
    (folder / "rank_0").write_bytes(whole[: -len(b"u.")] + ENDLESS[kind] + b"u.")
    (folder / "rank_1").write_bytes(whole)
    assert main(["diagnose", str(tmp_path / "case")]) in (0, 1, 3)
    assert main(["collect", "--redact", str(tmp_path / "case"), "--case", str(tmp_path / "c")]) == 0
    assert "Traceback" not in capsys.readouterr().err
    copied = {path.name for path in (tmp_path / "c" / "dumps").iterdir()}
    assert copied == {"rank_1"}
    assert "left out: dumps/rank_0: it is a dump" in (tmp_path / "c" / "redaction.txt").read_text()


def test_json_without_an_end_is_left_out(tmp_path: Path) -> None:
    """Deeper than it can be walked, though not than it can be read."""
    case = tmp_path / "case"
    (case / "parts").mkdir(parents=True)
    (case / "parts" / "a.json").write_text('{"a":' * 900 + "1" + "}" * 900)
    done = redact_case(case, tmp_path / "c", Redactor())
    assert list(done.left_out) == ["parts/a.json"]
