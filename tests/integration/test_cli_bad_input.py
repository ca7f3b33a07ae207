"""Bad input on the command line: one sentence and a hint, the right exit code, nothing done."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from unhang.cli.main import main

EXAMPLE = Path(__file__).parents[2] / "examples" / "healthy" / "dumps"
USAGE, UNREADABLE = 2, 3


class Hostile:
    """Runs a program when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        """What a naive reader would execute."""
        return os.system, ("touch owned",)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with everything that is bad, as the working directory of the command."""
    for name in ("empty", "random", "evil", "sparse"):
        (tmp_path / name).mkdir()
    (tmp_path / "random" / "rank_0").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "evil" / "rank_0").write_bytes(pickle.dumps({"entries": [Hostile()]}))
    with (tmp_path / "sparse" / "nccl_trace_rank_0").open("wb") as file:
        file.truncate(2 << 30)
    (tmp_path / "empty.log").touch()
    (tmp_path / "job.log").write_text("[rank0]: ValueError: no labels\n")
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "torn.log.gz").write_bytes(b"\x1f\x8b torn")
    (tmp_path / "check.py").write_text("def f(): return 3\n")
    os.mkfifo(tmp_path / "fifo")
    return tmp_path


def unhang(
    place: Path, *words: str, before: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run the command line there."""
    command = [*before, sys.executable, "-m", "unhang", *words]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)


def listing(place: Path) -> set[str]:
    """Every file and folder below."""
    return {str(path.relative_to(place)) for path in place.rglob("*")}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("diagnose", "nowhere"), UNREADABLE),
        (("diagnose",), USAGE),
        (("diagnose", "empty"), UNREADABLE),
        (("diagnose", "random"), UNREADABLE),
        (("diagnose", "evil"), UNREADABLE),
        (("diagnose", "sparse"), UNREADABLE),
        (("diagnose", str(EXAMPLE), "--world-size", "0"), USAGE),
        (("diagnose", str(EXAMPLE), "--world-size", "999999999"), USAGE),
        (("query", str(EXAMPLE), "FROM calls", "--time-limit", "0"), USAGE),
        (("diagnose", str(EXAMPLE), "--group-world-size", "-1"), USAGE),
        (("diagnose", str(EXAMPLE), "--rank-pattern", "("), USAGE),
        (("diagnose", str(EXAMPLE), "--incident", "9999"), USAGE),
        (("diagnose", str(EXAMPLE), "-o", "empty"), USAGE),
        (("diagnose", str(EXAMPLE), "-o", "no/such/folder/x.json"), USAGE),
        (("diagnose", str(EXAMPLE), "--db", "empty"), USAGE),
        (("diagnose", str(EXAMPLE), "--db", "evil/rank_0"), USAGE),
        (("diagnose", str(EXAMPLE), "--parquet", "random"), USAGE),
        (("diagnose", str(EXAMPLE), "--force"), USAGE),
        (("diagnose", str(EXAMPLE), "--width", "3"), USAGE),
        (("entries", "empty"), UNREADABLE),
        (("entries", str(EXAMPLE), "--ranks", "3-1"), USAGE),
        (("entries", str(EXAMPLE), "--ranks", "77"), USAGE),
        (("entries", str(EXAMPLE), "--group", "nobody\x1b[2J"), USAGE),
        (("entries", str(EXAMPLE), "--last", "-1"), USAGE),
        (("query", "random", "SELECT 1"), UNREADABLE),
        (("query", str(EXAMPLE), "SELEC 1"), USAGE),
        (("query", str(EXAMPLE), ""), USAGE),
        (("query", str(EXAMPLE), "SELECT 1", "--limit", "-1"), USAGE),
        (("query", str(EXAMPLE), "COPY calls TO 'stolen.csv'"), USAGE),
        (("query", str(EXAMPLE), "SELECT * FROM read_text('random/rank_0')"), USAGE),
        (("explain", "UH999"), USAGE),
        (("diagnose", str(EXAMPLE), "--log", "nowhere\x1b[2J"), UNREADABLE),
        (("diagnose", str(EXAMPLE), "--log", "*.nothing"), UNREADABLE),
        (("diagnose", str(EXAMPLE), "--log", "empty"), UNREADABLE),
        (("diagnose", str(EXAMPLE), "--trace", "empty"), UNREADABLE),
        (("diagnose", str(EXAMPLE), "--core", "random"), UNREADABLE),
        (("diagnose", "--log", "evil/rank_0"), UNREADABLE),
        (("diagnose", str(EXAMPLE), "--report", "other.json"), UNREADABLE),
        (("diagnose", str(EXAMPLE), "--report", "fifo"), UNREADABLE),
        (("diagnose", "--report", "nowhere\x1b[2J"), UNREADABLE),
        (("logs", "job.log", "--case", "random"), USAGE),
        (("logs", "job.log", "--case", "job.log"), USAGE),
        (("logs", "job.log", "--case", "job.log/\x1b[2J"), USAGE),
        (("logs", "job.log", "--fold", "--case", "new"), USAGE),
        (("trace", "--case", "new", "--", "true"), USAGE),
        (("logs", "nowhere"), UNREADABLE),
        (("logs", "*.nothing"), UNREADABLE),
        (("logs", "empty"), UNREADABLE),
        (("logs", "empty.log"), UNREADABLE),
        (("logs", "random/rank_0"), UNREADABLE),
        (("logs", "other.json"), UNREADABLE),
        (("logs", "torn.log.gz"), UNREADABLE),
        (("logs", "fifo"), UNREADABLE),
        (("logs", "job.log", "--rank", "-1"), USAGE),
        (("logs", "job.log", "--rank", "7"), USAGE),
        (("logs", "job.log", "--split", "random"), USAGE),
        (("logs", "job.log", "--fold", "--format", "json"), USAGE),
        (("logs", "job.log", "-o", "empty"), USAGE),
        (("core", "nowhere"), UNREADABLE),
        (("core", "empty"), UNREADABLE),
        (("core", "job.log"), UNREADABLE),
        (("core", "random/rank_0", "--exe", "nowhere"), UNREADABLE),
        (("trace", "--show", "nowhere"), UNREADABLE),
        (("trace", "--show", "random"), UNREADABLE),
        (("trace", "--syscalls", "nobody"), USAGE),
        (("trace", "--dir", "empty", "--", "true"), USAGE),
        (("numerics", "nowhere.py:f", "--on", "cpu", "--on", "cpu"), UNREADABLE),
        (("numerics", "job.log", "--on", "cpu", "--on", "cpu"), UNREADABLE),
        (("numerics", "check.py:f", "--on", "cpu"), USAGE),
        (("numerics", "check.py:f", "--on", "cpu", "--on", "cpu", "--scale", "0"), USAGE),
        (("numerics", "check.py:f", "--across-ranks"), USAGE),
    ],
)
def test_one_sentence_and_a_hint(
    place: Path,
    words: tuple[str, ...],
    code: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing on stdout, two lines on stderr, nothing executed and nothing written."""
    monkeypatch.chdir(place)
    before = listing(place)
    assert main(words) == code
    out, err = capsys.readouterr()
    assert out == ""
    first, second = err.splitlines()
    assert first.startswith("unhang: ")
    assert second.startswith("hint: ")
    assert err.replace("\n", "").isprintable()
    assert listing(place) == before


def test_a_process_ends_with_the_code_and_without_a_traceback(place: Path) -> None:
    """The same seen from outside."""
    done = unhang(place, "diagnose", "evil")
    assert (done.returncode, done.stdout) == (UNREADABLE, "")
    assert len(done.stderr.splitlines()) == 2
    assert not (place / "owned").exists()


def test_a_folder_without_permission(place: Path) -> None:
    """The one thing that root may do too is given up first, so that the test means something."""
    (place / "empty").chmod(0)
    rights = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--")
    done = unhang(place, "diagnose", "empty", before=rights if os.geteuid() == 0 else ())
    (place / "empty").chmod(0o755)
    assert done.returncode == UNREADABLE
    assert "ermission" in done.stderr
    assert "Traceback" not in done.stderr


def test_one_bad_file_among_good_ones_is_a_note(place: Path) -> None:
    """The verdict stands, and the report says what could not be read."""
    for dump in EXAMPLE.rglob("*"):
        if dump.is_file():
            (place / "random" / dump.name).write_bytes(dump.read_bytes())
    (place / "random" / "gloo_trace_rank_9").write_bytes(b"\x80\x04garbage")
    done = unhang(place, "diagnose", "random", "--width", "200")
    assert "rank_9" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_gets_no_word_and_no_verdict(place: Path) -> None:
    """`unhang ... | head` ends quietly, with the code of SIGPIPE: 0 would say that all is well."""
    query = f"query {EXAMPLE} 'FROM calls, range(1000)' --format csv"
    command = f"{sys.executable} -m unhang {query} | head -1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("call_id,")
    assert done.stderr == ""
    assert done.returncode == 128 + signal.SIGPIPE
