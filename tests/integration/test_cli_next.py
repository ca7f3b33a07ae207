"""Every command that a report advises runs as it is printed, for every captured hang."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from lab.live.faults import FAULTS
from unhang.cli.main import build_parser, main

ROOT = Path(__file__).parents[2]
LIVE = ("stacks", "doctor", "collect")
"""They look at what runs: here it is enough that they take their words."""
KNOWN: set[str] = set()


def steps_of(capsys: pytest.CaptureFixture[str], name: str) -> list[str]:
    """The commands that the JSON of one example holds."""
    main(["diagnose", f"examples/{name}", "--format", "json"])
    return [step["command"] for step in json.loads(capsys.readouterr().out)["next"]]


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_advised_runs(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No word is missing, no rank or group is unknown, and something is shown."""
    monkeypatch.chdir(ROOT)
    commands = steps_of(capsys, name)
    assert commands or name == "healthy"
    for command in set(commands) - KNOWN:
        KNOWN.add(command)
        program, *words = shlex.split(command)
        assert program == "unhang"
        build_parser(only=words[0]).parse_args(words)
        if words[0] not in LIVE:
            assert main(words) == 0
            assert capsys.readouterr().out.strip()
