"""`unhang diagnose`, `entries` and `query` as a user runs them, on captured hangs."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from importlib.resources import files
from pathlib import Path
from typing import IO

import pytest
from jsonschema import Draft202012Validator

EXAMPLES = Path(__file__).parents[2] / "examples"
HUNG = EXAMPLES / "never-joined" / "dumps"
HEALTHY = EXAMPLES / "healthy" / "dumps"
PLAIN = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR")}


def unhang(
    *words: object, cwd: Path | None = None, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    command = [sys.executable, "-m", "unhang", *map(str, words)]
    return subprocess.run(
        command, cwd=cwd, env=PLAIN | environ, capture_output=True, text=True, check=False
    )


def test_json_is_the_contract_and_alone_on_stdout() -> None:
    """Valid against the schema in the package; exit code 1; nothing on stderr."""
    done = unhang("diagnose", HUNG, "--format", "json")
    assert (done.returncode, done.stderr) == (1, "")
    report = json.loads(done.stdout)
    schema = json.loads(files("unhang").joinpath("report.schema.json").read_text())
    Draft202012Validator(schema).validate(report)
    assert report["findings"][0]["culprits"] == [2]


def test_the_terminal_report_names_rank_and_line() -> None:
    """In a pipe: 80 columns, no colour, and the first ten lines say it; commands stay whole."""
    done = unhang("diagnose", HUNG)
    top = "\n".join(done.stdout.splitlines()[:10])
    assert "ank 2" in top
    site = json.loads((HUNG.parent / "truth.json").read_text())["lines"][0]
    assert f"{site['file']}:{site['line']}" in top
    assert "\x1b" not in done.stdout
    prose = [line for line in done.stdout.splitlines() if str(HUNG) not in line]
    assert max(map(len, prose)) <= 80


def test_a_terminal_that_knows_ascii_only_gets_ascii() -> None:
    """No character beyond it, and no exception."""
    done = unhang("diagnose", HUNG, PYTHONIOENCODING="ascii:strict")
    assert done.returncode == 1
    assert done.stdout.isascii()


def test_a_healthy_job_exits_with_0() -> None:
    """No finding of role cause."""
    assert unhang("diagnose", HEALTHY).returncode == 0


def test_without_a_path_the_newest_case_is_taken(tmp_path: Path) -> None:
    """The case that was made last under ./unhang-cases."""
    for age, (name, source) in enumerate((("b-new", HUNG), ("a-old", HEALTHY))):
        case = tmp_path / "unhang-cases" / name
        shutil.copytree(source, case / "dumps")
        os.utime(case, (1_700_000_000 - age, 1_700_000_000 - age))
    assert unhang("diagnose", cwd=tmp_path).returncode == 1


def test_an_archive_and_a_glob_are_paths_too(tmp_path: Path) -> None:
    """The same verdict from all of them."""
    with tarfile.open(tmp_path / "job.tar.gz", "w:gz") as tar:
        tar.add(HUNG, "dumps")
    verdicts = {
        unhang("diagnose", path, "--format", "json").stdout.split('"job"')[0]
        for path in (HUNG, tmp_path / "job.tar.gz", f"{HUNG}/*")
    }
    assert len(verdicts) == 1


@pytest.mark.parametrize(
    ("name", "start"), [("r.md", "### PROBLEM"), ("r.html", "<!DOCTYPE html>")]
)
def test_pages_for_issues_and_browsers(name: str, start: str, tmp_path: Path) -> None:
    """The file's name chooses the format; stdout stays empty."""
    done = unhang("diagnose", HUNG, "-o", tmp_path / name)
    assert (done.returncode, done.stdout) == (1, "")
    (said,) = done.stderr.splitlines()
    assert said.startswith("unhang: PROBLEM  ")
    assert said.endswith(f"(written to {tmp_path / name})")
    assert (tmp_path / name).read_text().startswith(start)


def test_missing_files_are_silent_ranks_when_the_size_is_told() -> None:
    """--world-size adds the ranks that left nothing."""
    done = unhang("diagnose", HUNG, "--world-size", "6", "--format", "json")
    statuses = {row["rank"]: row["status"] for row in json.loads(done.stdout)["ranks"]}
    assert {statuses[4], statuses[5]} <= {"silent", "unknown"}


def test_redacted_output_has_no_user_host_or_directory(tmp_path: Path) -> None:
    """What is shared names nobody, in the report and in the tables alike."""
    dumps = tmp_path / "home" / "alice" / "dumps"
    shutil.copytree(HUNG, dumps)
    database = tmp_path / "out.duckdb"
    done = unhang("diagnose", dumps, "--redact", "--format", "json", "--db", database)
    assert done.returncode == 1
    assert "never_joined.py" in done.stdout
    assert "alice" not in done.stdout
    asked = unhang("query", database, "SELECT source FROM dumps", "--format", "csv")
    assert "alice" not in asked.stdout
    assert "Replaced:" in done.stdout


def test_tables_from_dumps_a_database_and_parquet_agree(tmp_path: Path) -> None:
    """Three ways to the same rows, and nothing but the named files is written."""
    database, parquet = tmp_path / "out.duckdb", tmp_path / "pq"
    assert unhang("diagnose", HUNG, "--db", database, "--parquet", parquet).returncode == 1
    assert {path.name for path in tmp_path.iterdir()} == {"out.duckdb", "pq"}
    sql = "SELECT rank, seq, op, absent_ranks FROM stuck_calls ORDER BY rank"
    answers = {
        unhang("query", p, sql, "--format", "json").stdout for p in (HUNG, database, parquet)
    }
    assert len(answers) == 1
    assert json.loads(answers.pop())[0] == {
        "rank": 0,
        "seq": 5,
        "op": "all_reduce",
        "absent_ranks": [2],
    }


def test_query_lists_tables_and_limits_rows() -> None:
    """Without SQL the tables; with --limit no more rows than that, and a word about it."""
    assert "stuck_calls" in unhang("query", HUNG).stdout
    done = unhang("query", HUNG, "SELECT rank FROM calls", "--limit", "2")
    assert "first 2 rows" in done.stdout
    done = unhang("query", HUNG, "SELECT rank FROM calls", "--limit", "2", "--format", "csv")
    assert len(done.stdout.splitlines()) == 3


def test_entries_are_aligned_and_folded() -> None:
    """Ranks that agree share a column; the call that rank 2 lacks is a dash."""
    done = unhang("entries", HUNG, "--last", "2", "--group", "default_pg")
    assert done.returncode == 0
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["#", "0-1,3", "2"] in lines
    assert ["5", "all_reduce", "*", "-"] in lines


def test_entries_for_programs_are_complete() -> None:
    """CSV has a row a call and JSON an object a call, with stacks when asked for."""
    rows = list(csv.DictReader(io.StringIO(unhang("entries", HUNG, "--format", "csv").stdout)))
    assert len(rows) == 19
    words = ("entries", HUNG, "--format", "json", "--ranks", "2", "--last", "1", "--stacks")
    (last,) = json.loads(unhang(*words).stdout)
    assert (last["rank"], last["seq"]) == (2, 4)
    assert last["stack"][0]["function"] == "all_reduce"


@pytest.mark.parametrize("form", ["json", "brief-json"])
def test_a_program_is_told_in_json_that_nothing_can_be_read(tmp_path: Path, form: str) -> None:
    """Dumps without anything in them: an object with a decision, and exit code 3."""
    (tmp_path / "nccl_trace_rank_0").write_bytes(b"")
    done = unhang("diagnose", tmp_path, "--format", form)
    assert (done.returncode, done.stderr) == (3, "")
    told = json.loads(done.stdout)
    assert told["status"] == "insufficient"
    assert told["decision"]["action"] == "look-first"
    assert "empty" in told["summary"]
    if form == "json":
        schema = json.loads(files("unhang").joinpath("report.schema.json").read_text())
        Draft202012Validator(schema).validate(told)


def test_watching_shows_each_new_verdict_once(tmp_path: Path) -> None:
    """No case yet, a case, the same again, another one; Ctrl-C ends it without a word of Python."""
    command = [sys.executable, "-m", "unhang", "diagnose", "--watch"]
    with (tmp_path / "said").open("w+") as said:
        process = subprocess.Popen(
            command, cwd=tmp_path, env=PLAIN, stdout=subprocess.PIPE, stderr=said, text=True
        )
        assert process.stdout is not None
        case = tmp_path / "unhang-cases" / "one"
        shutil.copytree(HUNG.parent, tmp_path / "made")
        (tmp_path / "unhang-cases").mkdir()
        (tmp_path / "made").rename(case)
        lines = until(process.stdout, "-v shows all")
        assert lines[0].startswith("PROBLEM  Rank 2 never called")
        (case / "later.txt").write_text("nothing that tells")
        shutil.copytree(HEALTHY.parent, tmp_path / "made")
        (tmp_path / "made").touch()  # a copy is as old as what it was made from
        (tmp_path / "made").rename(tmp_path / "unhang-cases" / "two")
        lines = until(process.stdout, "-v shows all")
        assert "never called" not in lines[0]
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
        said.seek(0)
        assert (rest, process.returncode) == ("", 0)
        assert said.read() == (
            "unhang: watching the newest case under ./unhang-cases until Ctrl-C\n"
        )


def until(stream: IO[str], end: str) -> list[str]:
    """Lines up to the one that begins like this."""
    lines: list[str] = []
    while not lines or not lines[-1].startswith(end):
        line = stream.readline()
        assert line, lines
        lines += [line] if line.strip() else []
    return lines


def test_what_cannot_be_watched_is_a_sentence(tmp_path: Path) -> None:
    """A path that is not there, and what does not change."""
    for words in ([tmp_path / "none"], ["--ras", "-"], [HUNG, "--db", tmp_path / "x.db"]):
        done = unhang("diagnose", "--watch", *words)
        assert done.returncode in (2, 3)
        assert done.stderr.startswith("unhang: ")
        assert "Traceback" not in done.stderr
