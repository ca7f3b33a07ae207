"""A case directory holds one incident, whatever the dumps in it call themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from makedumps import dump, entry, write

from unhang.ingest import load
from unhang.ingest.beside import Extras, of_attempt
from unhang.model import LogEvent, SlowRank


def test_dumps_of_the_dead_belong_to_the_case(tmp_path: Path) -> None:
    """Dumps that ranks named themselves are not split off, and nothing is noted about it."""
    (tmp_path / "manifest.json").write_text('{"schema": "unhang.case/1", "world_size": 3}')
    folder = tmp_path / "dumps" / "gloo"
    folder.mkdir(parents=True)
    files = {
        f"rank_{rank}": dump(
            [entry(0)], ranks=3, unhang={"rank": rank, "incident": incident, "backend": "gloo"}
        )
        for rank, incident in enumerate(("hang", "hang", "job-end"))
    }
    write(folder, files)
    case = load(tmp_path)
    assert [found.rank for found in case.dumps] == [0, 1, 2]
    assert case.incident == "hang"
    assert not [note for note in case.notes if note.source == "incidents"]
    assert [found.rank for found in load(tmp_path, incident="job-end").dumps] == [2]


SLOW = {"rank": 1, "excess": 0.57, "late_ms": 28.6, "since_ns": 17 * 10**17, "for_s": 17.0}


@pytest.mark.parametrize(
    ("told", "slow"),
    [
        ({"incident": {"reason": "slow", "slow": SLOW}}, SlowRank(1, 0.57, 28.6, 17 * 10**17, 17)),
        ({"incident": {"reason": "hang"}}, None),
        ({"incident": {"slow": {**SLOW, "rank": "1"}}}, None),
        ({"incident": {"slow": [SLOW]}}, None),
        ({"incident": "slow"}, None),
    ],
)
def test_a_slow_rank_that_the_watch_saw(
    tmp_path: Path, told: dict[str, object], slow: SlowRank | None
) -> None:
    """It stands in the manifest of its case; what is not of that form is nothing."""
    (tmp_path / "manifest.json").write_text(json.dumps({"world_size": 1, **told}))
    (tmp_path / "dumps").mkdir()
    write(tmp_path / "dumps", {"rank_0": dump([entry(0)])})
    assert load(tmp_path).slow == slow


@pytest.mark.parametrize(
    ("looked_at", "unvisited"),
    [([[0, 1], [3, 3]], (2,)), ([[0, 3]], ()), ([], (0, 1, 2, 3)), (None, ()), ([[0, "x"]], ())],
)
def test_ranks_that_no_node_reported_are_told(
    tmp_path: Path, looked_at: object, unvisited: tuple[int, ...]
) -> None:
    """The manifest has it; one that does not tell, of an older unhang, is no word against any."""
    told = {} if looked_at is None else {"looked_at": looked_at}
    (tmp_path / "manifest.json").write_text(json.dumps({"world_size": 4, **told}))
    (tmp_path / "dumps").mkdir()
    write(tmp_path / "dumps", {"rank_0": dump([entry(0)], ranks=4)})
    assert load(tmp_path).unvisited == unvisited


def test_what_an_earlier_attempt_said_explains_no_later_one() -> None:
    """The job's whole output has the lines of both attempts, and names none of them."""

    def said(text: str, source: str, **fields: str) -> LogEvent:
        return LogEvent("UH776", "cause", 1, text, source, fields=fields)

    events = (
        said("OSError: No space left", "attempt_0/1/stderr.log:8", attempt="0"),
        said("OSError: No space left", "output.log:8"),
        said("OSError: Read-only file system", "attempt_1/1/stderr.log:3", attempt="1"),
        said("OSError: Read-only file system", "output.log:80"),
    )
    kept = of_attempt(Extras(log_events=events), "1")
    assert kept == events[2:]
    assert of_attempt(Extras(log_events=events[1:2]), "1") == events[1:2]


@pytest.mark.parametrize(("attempt", "kept"), [(1, 0), (0, 2), (None, 2)])
def test_the_manifest_tells_the_attempt_where_no_dump_does(
    tmp_path: Path, attempt: int | None, kept: int
) -> None:
    """A later attempt may hang before its ranks record anything: stacks and logs are all."""
    (tmp_path / "manifest.json").write_text(
        json.dumps({"world_size": 2, "job": {"attempt": attempt}})
    )
    raised = "Traceback (most recent call last):\nOSError: [Errno 28] No space left on device\n"
    logs = tmp_path / "logs"
    (logs / "run" / "attempt_0" / "1").mkdir(parents=True)
    (logs / "run" / "attempt_0" / "1" / "stderr.log").write_text(raised)
    marked = "".join(f"[default1]:{line}\n" for line in raised.splitlines())
    (logs / "run.output.log").write_text(marked + "[default0]:step 1 loss 0.5\n")
    (tmp_path / "dumps").mkdir()
    write(tmp_path / "dumps", {"rank_0": dump([entry(0)])})
    found = [event for event in load(tmp_path).log_events if event.code == "UH776"]
    assert len(found) == kept
