"""Bad input on the command line: one sentence and a hint, the right exit code, nothing done."""

from __future__ import annotations

import os
import pickle
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


def test_a_reader_that_goes_away_is_no_error(place: Path) -> None:
    """`unhang ... | head` ends quietly."""
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
    assert done.returncode == 0
