"""`python -m lab simulate` and `python -m lab score` as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.__main__ import main


def test_simulate_writes_dumps_and_truth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One file a rank but for the lost ones, and the truth beside them."""
    out = tmp_path / "case"
    words = ["--layout", "tp", "--ranks", "4", "--fault", "never-joined", "--missing", "0-1"]
    assert main(["simulate", str(out), *words]) == 0
    assert len(list((out / "dumps").iterdir())) == 2
    assert json.loads((out / "truth.json").read_text())["fault"] == "never-joined"
    assert "unhang diagnose" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["OUT", "--fault", "nothing"],
        ["OUT", "--layout", "nothing"],
        ["OUT", "--condition", "nothing"],
        ["OUT", "--version", "9.9"],
        ["OUT", "--names", "nothing"],
        ["OUT", "--missing", "first"],
        ["OUT", "--case", "tuned/nothing-0"],
        ["OUT", "--ranks", "5"],
    ],
)
def test_wrong_usage_is_a_sentence(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a hint, without a traceback, and nothing is written."""
    words = [str(tmp_path / "out") if word == "OUT" else word for word in words]
    assert main(["simulate", *words]) == 2
    assert "hint:" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    """Layouts, faults and the tuned cases; held-out cases are only counted."""
    assert main(["simulate", "--list"]) == 0
    shown = capsys.readouterr().out
    assert "tuned/never-joined-0" in shown
    assert "held-out/" not in shown


def test_score_prints_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON on stdout, and the page where it is asked for."""
    page = tmp_path / "accuracy.md"
    words = ["--part", "tuned", "--class", "all-dumps-empty", "--largest", "8", "--processes", "1"]
    assert main(["score", "--tools", "unhang", "--json", "--write", str(page), *words]) == 0
    figures = json.loads(capsys.readouterr().out)["tuned"]["unhang"]
    assert figures["cases"] == figures["exact"] > 0
    assert page.read_text().startswith("# Accuracy")


def test_unknown_tools_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """By name."""
    assert main(["score", "--tools", "nothing"]) == 2
    assert "nothing" in capsys.readouterr().err


def test_new_rule_takes_the_next_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the end of its file, after which the next one has a code of its own."""
    from lab.rules import rows

    for name in rows.FILES:
        text = (rows.PLACE / f"{name}.toml").read_text(encoding="utf-8")
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(rows, "PLACE", tmp_path)
    before = {row["code"] for row in rows.rows()}
    for slug in ("nccl-ring-broken", "nccl-tree-broken"):
        assert main(["new-rule", "nccl", slug, "--role", "cause"]) == 0
    added = [row for row in rows.rows() if row["code"] not in before]
    assert [row["slug"] for row in added] == ["nccl-ring-broken", "nccl-tree-broken"]
    first, second = (int(row["code"][2:]) for row in added)
    assert second == first + 1
    assert {row["role"] for row in added} == {"cause"}
    place, line = capsys.readouterr().out.split("\n")[0].rsplit(":", 1)
    assert Path(place).read_text().split("\n")[int(line) - 1] == "[[rule]]"
    assert main(["new-rule", "nccl", "nccl-ring-broken"]) == 2
