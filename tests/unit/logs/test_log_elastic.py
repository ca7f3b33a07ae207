"""torchelastic's error files and the summary of its launcher: whose failure it was, and when."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unhang.errors import InputError
from unhang.logs.files import find_logs, named_logs
from unhang.logs.keeping import LogScan
from unhang.logs.lines.elastic import entry_of, error_text
from unhang.logs.lines.prefixes import Line
from unhang.logs.scan import scan_logs

CALLSTACK = """\
Traceback (most recent call last):
  File "/usr/lib/python3/site-packages/torch/distributed/elastic/errors.py", line 367, in wrapper
    return f(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^
  File "/home/user/train.py", line 9, in main
    save(state)
OSError: [Errno 28] No space left on device: '/ckpt/rank_1.pt'
"""
SUMMARY = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2025-11-20_16:29:12
  host      : node02
  rank      : 10 (local_rank: 2)
  exitcode  : -9 (pid: 567)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 567
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2025-11-20_16:29:10
  host      : node01
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 568)
  error_file: /tmp/x/attempt_0/1/error.json
  traceback : Traceback (most recent call last):
    File "/home/user/train.py", line 9, in main
      save(state)
  OSError: [Errno 28] No space left on device: '/ckpt/rank_1.pt'

============================================================
"""
AT_16_29_10 = 1_763_656_150 * 10**9


def error_file(folder: Path, local_rank: int, attempt: int = 0, stack: str = CALLSTACK) -> Path:
    """An error file where torchrun puts it."""
    path = folder / f"job_x/attempt_{attempt}" / str(local_rank) / "error.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    extra = {"py_callstack": stack, "timestamp": str(AT_16_29_10 // 10**9)}
    path.write_text(json.dumps({"message": {"message": "OSError: …", "extraInfo": extra}}))
    return path


def scan(path: Path) -> LogScan:
    """Scan a log, or a directory of them."""
    return scan_logs(find_logs(path))


def test_an_error_file_is_read_like_a_log(tmp_path: Path) -> None:
    """The rule, the user's line, the time, the rank on its node and the attempt."""
    error_file(tmp_path, 1, attempt=2)
    (event,) = scan(tmp_path).events
    assert (event.code, event.rank, event.time_ns) == ("UH776", 1, AT_16_29_10)
    assert (event.fields["file"], event.fields["line"]) == ("/home/user/train.py", "9")
    assert (event.fields["rank_is"], event.fields["attempt"]) == ("local", "2")


def test_a_message_without_a_stack_is_read_too(tmp_path: Path) -> None:
    """Errors that were not raised in Python have a message only."""
    path = tmp_path / "rank_3.error.json"
    path.write_text(json.dumps({"message": "ValueError: no labels"}))
    assert [(e.code, e.rank) for e in scan(path).events] == [("UH793", 3)]


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', "no json", '{"message": 7}', "[" * 9000])
def test_what_is_no_error_file_becomes_a_note(tmp_path: Path, text: str) -> None:
    """Any other JSON is said to be something else."""
    (tmp_path / "error.json").write_text(text)
    found = scan(tmp_path)
    assert (found.events, [note.level for note in found.notes]) == ([], ["error"])


def test_the_summary_gives_each_message_its_rank(tmp_path: Path) -> None:
    """Numbers are global ranks; time and host are the entry's; the blamed rank is kept apart."""
    path = tmp_path / "launcher.log"
    path.write_text(SUMMARY)
    found = scan(path)
    told = {event.code: event for event in found.events}
    assert (told["UH720"].rank, told["UH720"].host) == (10, "node02")
    full = told["UH776"]
    assert (full.rank, full.host, full.time_ns) == (1, "node01", AT_16_29_10)
    assert (full.fields["line"], full.role) == ("9", "cause")
    assert told["UH723"].fields == {"blamed": "1", "exitcode": "1"}
    assert found.ranks == {1, 10}


@pytest.mark.parametrize("prefix", ["", "[pod/trainer-0/main] ", "0: ", "[node01:0]: "])
def test_a_summary_behind_a_prefix(tmp_path: Path, prefix: str) -> None:
    """Whatever the launcher's own lines begin with, they are about the rank of the entry."""
    path = tmp_path / "job.out"
    path.write_text("".join(f"{prefix}{line}\n" for line in SUMMARY.splitlines()))
    (full,) = (event for event in scan(path).events if event.code == "UH776")
    assert (full.rank, full.fields["line"]) == (1, "9")


def test_equal_failures_of_three_sources_are_one(tmp_path: Path) -> None:
    """stderr, error file and summary tell of one failure: one cause, and nothing is doubtful."""
    from unhang.analysis import diagnose
    from unhang.casebuilder import case_of_logs

    error_file(tmp_path, 1)
    (tmp_path / "job_x/attempt_0/1/stderr.log").write_text(CALLSTACK)
    (tmp_path / "launcher.log").write_text(
        SUMMARY.replace("-9", "-15").replace("9 (SIGKILL)", "15 (SIGTERM)")
    )
    report = diagnose(case_of_logs(scan(tmp_path)))
    assert [(f.code, f.culprits, f.confidence) for f in report.causes] == [("UH776", (1,), "high")]


def test_globs_and_missing_names(tmp_path: Path) -> None:
    """A glob finds logs, each once; what is not there is an error."""
    for rank in range(3):
        (tmp_path / f"rank_{rank}.log").write_text("x\n")
    names = [str(tmp_path / "rank_*.log"), str(tmp_path / "rank_1.log")]
    assert [source.rank for source in named_logs(names)] == [0, 1, 2]
    for name in ("none.log", "*.none", "no\x1b[2J"):
        with pytest.raises(InputError) as caught:
            named_logs([str(tmp_path / name)])
        assert caught.value.message.isprintable()


@given(st.binary(max_size=200))
def test_any_bytes_are_an_error_file_or_refused(data: bytes) -> None:
    """Nothing else happens."""
    try:
        error_text(data)
    except InputError:
        return


@given(st.lists(st.text(max_size=60), max_size=6), st.text(max_size=60))
def test_any_lines_are_an_entry_or_none(above: list[str], text: str) -> None:
    """Whatever stands there, reading it does not fail."""
    entry = entry_of(above, Line(text), 1)
    assert entry is None or entry.rank >= 0
