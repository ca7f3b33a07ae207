"""Findings that are made outside the analysis say why they are no surer than they are."""

from __future__ import annotations

import ast
from pathlib import Path

SRC = Path(__file__).parents[2] / "src" / "unhang"
COPIES = {"ingest/savedreports.py", "analysis/words/__init__.py"}
"""They give a finding the confidence of another report, or of a claim."""


def made_here() -> list[tuple[str, ast.Call]]:
    """Every place that makes a finding of its own."""
    return [
        (name, node)
        for path in sorted(SRC.rglob("*.py"))
        if (name := path.relative_to(SRC).as_posix()) not in COPIES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Finding"
    ]


def test_every_finding_of_less_than_high_confidence_has_a_reason() -> None:
    """Where it is always high, there is nothing to say."""
    silent, made = [], made_here()
    for name, call in made:
        given = {each.arg: each.value for each in call.keywords}
        sure = given.get("confidence")
        high = isinstance(sure, ast.Constant) and sure.value == "high"
        if not high and "confidence_reasons" not in given:
            silent.append(f"{name}:{call.lineno}")
    assert len(made) > 4
    assert silent == []
