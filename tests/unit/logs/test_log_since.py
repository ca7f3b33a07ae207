"""An earlier case of the same job that ended well is a baseline by itself, and never a verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from unhang.casedir.earlier import case_of, good_before
from unhang.cli.main import main

STEPS = "".join(f"[rank2]: step {number} loss 1.5\n" for number in range(20))
BAD = "[rank2]: the sheep was counted\n[rank2]: ERROR: the sheep is lost\n"
COMMAND = ["torchrun", "train.py"]
NOTE = "an earlier healthy case of the same command"


def case(
    folder: Path, text: str, *, hour: int, ending: int | None = None, **changed: object
) -> Path:
    """A case as `unhang run` leaves it, with one log."""
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "rank_2.log").write_text(text)
    manifest = {
        "schema": "unhang.case/1",
        "world_size": 4,
        "job": {"job": "j1", "attempt": 0, "command": COMMAND},
        "incident": {"id": folder.name, "time_ns": hour * 3600 * 10**9},
        "nodes": [{"host": "n1", "ranks": [2], "ending": None}],
        "ranks": {},
    }
    if ending is not None:
        manifest["nodes"][0]["ending"] = {"text": "left", "exit_code": ending}  # type: ignore[index]
    (folder / "manifest.json").write_text(json.dumps({**manifest, **changed}))
    return folder


def healthy(folder: Path) -> Path:
    """The same with a verdict that nothing is wrong."""
    (folder / "report.json").write_text('{"status": "healthy", "summary": "fine"}')
    return folder


@pytest.mark.parametrize("ended", ["healthy", "exit code 0"])
@pytest.mark.parametrize("command", ["logs", "diagnose"])
def test_it_is_found_and_told(
    command: str, ended: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is new is told beside the verdict, and a note says with what it was compared."""
    good = case(tmp_path / "a", STEPS, hour=1, ending=0 if ended == "exit code 0" else None)
    if ended == "healthy":
        healthy(good)
    now = case(tmp_path / "b", STEPS + BAD, hour=2)
    assert main([command, str(now), "-v"]) == 3
    told = " ".join(capsys.readouterr().out.split())
    assert "the sheep was counted" in told
    assert NOTE in told
    assert main([command, str(now), "-v", "--no-baseline"]) == 3
    alone = " ".join(capsys.readouterr().out.split())
    assert NOTE not in alone
    assert "the sheep was counted" not in alone


def test_the_logs_of_a_case_are_of_that_case(tmp_path: Path) -> None:
    """Its folder of logs, and a log in it, name it as well."""
    now = case(tmp_path / "b", STEPS, hour=2)
    for named in (now, now / "logs", now / "logs" / "rank_2.log"):
        assert case_of(named) == now
    assert case_of(tmp_path / "other.log") is None


def test_the_newest_is_taken(tmp_path: Path) -> None:
    """Of several the last one before."""
    for hour in (1, 3, 2, 9):
        case(tmp_path / f"c{hour}", STEPS, hour=hour, ending=0)
    assert good_before(case(tmp_path / "now", BAD, hour=5)) == tmp_path / "c3"


@pytest.mark.parametrize(
    "changed",
    [
        {"ending": 1},
        {"ending": None},
        {"hour": 9},
        {"hour": 0},
        {"job": {"command": ["torchrun", "other.py"]}},
        {"job": {"command": None}},
        {"job": {"command": ["<removed>"]}},
        {"job": 7},
        {"incident": {}},
    ],
    ids=str,
)
def test_another_case_is_none(changed: dict[str, Any], tmp_path: Path) -> None:
    """Another command, a later one, one that failed, one that tells nothing."""
    case(tmp_path / "a", STEPS, **{"hour": 1, "ending": 0, **changed})
    assert good_before(case(tmp_path / "b", STEPS + BAD, hour=2)) is None


def test_what_cannot_be_read_is_none(tmp_path: Path) -> None:
    """A link, a manifest that is no JSON, a case without logs."""
    good = case(tmp_path / "elsewhere" / "a", STEPS, hour=1, ending=0)
    cases = tmp_path / "cases"
    now = case(cases / "b", STEPS + BAD, hour=2)
    (cases / "link").symlink_to(good)
    (case(cases / "c", STEPS, hour=1, ending=0) / "manifest.json").write_text("{")
    bare = case(cases / "d", STEPS, hour=1, ending=0)
    (bare / "logs" / "rank_2.log").unlink()
    (bare / "logs").rmdir()
    assert good_before(now) is None


def test_it_makes_no_failure_healthy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where a good run wrote the same error, the error is still not explained."""
    case(tmp_path / "a", STEPS + BAD + STEPS, hour=1, ending=0)
    now = case(tmp_path / "b", STEPS + BAD, hour=2)
    assert main(["logs", str(now)]) == 3
    assert "INSUFFICIENT" in capsys.readouterr().out


def test_a_sound_log_is_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is new in a log that tells of no trouble is nobody's business."""
    case(tmp_path / "a", STEPS, hour=1, ending=0)
    now = case(tmp_path / "b", f"{STEPS}[rank2]: a new word\n{STEPS}training finished\n", hour=2)
    assert main(["logs", str(now), "-v"]) == 0
    assert NOTE not in capsys.readouterr().out


def test_both_cannot_be_asked_for(tmp_path: Path) -> None:
    """A baseline and none."""
    log = tmp_path / "a.log"
    log.write_text(STEPS)
    assert main(["logs", str(log), "--baseline", str(log), "--no-baseline"]) == 2
