"""Every command that a report advises runs as it is printed, for every captured hang."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from lab.live.faults import FAULTS
from lab.simulate.corpus import CaseSpec
from lab.simulate.writing import simulate
from unhang.cli.main import build_parser, main

ROOT = Path(__file__).parents[2]
LIVE = ("stacks", "doctor", "collect")
"""They look at what runs: here it is enough that they take their words."""
KNOWN: set[str] = set()


SIMULATED = (
    CaseSpec("op", "wrong-op", "fsdp", 8, "plain", 0),
    CaseSpec("pipeline", "pipeline-stall", "pp", 4, "plain", 0),
    CaseSpec("device", "device-error", "hsdp", 16, "nccl-status", 0),
    CaseSpec("network", "fabric-stuck", "ddp", 8, "hosts", 0),
    CaseSpec("slow", "late-rank", "ddp", 8, "plain", 0),
    CaseSpec("lost", "most-dumps-lost", "ddp", 8, "few", 0),
)


def steps_of(capsys: pytest.CaptureFixture[str], place: str) -> list[str]:
    """The commands that the JSON of one verdict holds."""
    main(["diagnose", place, "--format", "json"])
    return [step["command"] for step in json.loads(capsys.readouterr().out)["next"]]


def see_that_they_run(capsys: pytest.CaptureFixture[str], commands: list[str]) -> None:
    """Each command is ours, takes its words, and shows something."""
    for command in set(commands) - KNOWN:
        KNOWN.add(command)
        program, *words = shlex.split(command)
        assert program == "unhang"
        build_parser(only=words[0]).parse_args(words)
        if words[0] not in LIVE:
            assert main(words) == 0
            assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_advised_runs(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No word is missing, no rank or group is unknown, and something is shown."""
    monkeypatch.chdir(ROOT)
    commands = steps_of(capsys, f"examples/{name}")
    assert commands or name == "healthy"
    see_that_they_run(capsys, commands)


@pytest.mark.parametrize("spec", SIMULATED, ids=lambda spec: spec.name)
def test_what_is_advised_for_other_faults_runs(
    spec: CaseSpec, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Groups, hosts and devices, too."""
    simulate(spec, tmp_path)
    commands = steps_of(capsys, str(tmp_path))
    assert commands
    see_that_they_run(capsys, commands)
