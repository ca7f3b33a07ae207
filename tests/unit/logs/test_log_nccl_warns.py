"""Every warning of NCCL 2.18 to 2.29 and of RCCL is known: what it is about, and what it is.

The table has the file and the format of each, with values put in ("3", "1f", "name0").
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from unhang.logs.lines.anchors import wanted_by
from unhang.logs.rules import rule_of
from unhang.logs.rules.known import UNEXPLAINED_ERROR

TABLE = Path(__file__).parents[2] / "data" / "logs" / "public" / "nccl_warns.tsv"


@dataclass(frozen=True, slots=True)
class Warn:
    """A warning, the releases that have it, and the rule that must know it."""

    since: str
    until: str
    code: str
    line: str


def warns() -> list[Warn]:
    """The rows of the table."""
    return [Warn(*row.split("\t")) for row in TABLE.read_text().splitlines()[1:]]


def test_every_warning_is_known_by_its_rule() -> None:
    """None of them is an unexplained error, and a specific rule has it before its part's."""
    told = {}
    for warn in warns():
        rule = next((rule for rule in wanted_by(warn.line) if rule.search(warn.line)), None)
        told[warn] = rule.code if rule else "-"
    assert {warn: code for warn, code in told.items() if code != warn.code} == {}
    assert UNEXPLAINED_ERROR.code not in told.values()


def test_the_table_is_whole() -> None:
    """All releases from 2.18 to 2.29 are there, RCCL too, and each warning once."""
    rows = warns()
    assert len(rows) == len(set(rows)) >= 700
    releases = {f"2.{minor}" for minor in range(18, 30)}
    assert releases <= {warn.since for warn in rows} | {warn.until for warn in rows}
    assert sum(warn.since == "rccl" for warn in rows) >= 80


@pytest.mark.parametrize(
    ("words", "role", "family"),
    [
        ("Duplicate GPU detected", "cause", "program"),
        ("mismatch in rank count from procs", "cause", "disagreement"),
        ("argument is NULL", "cause", "program"),
        ("Failed to malloc", "cause", "failure"),
        ("async fatal event", "cause", "transport"),
        ("Got completion from peer", "cause", "transport"),
        ("No transport found for rank", "cause", "transport"),
        ("is available but not working", "cause", "device"),
        ("Connection closed by remote peer", "consequence", "failure"),
        ("is in abort state", "consequence", "failure"),
        ("Socket recv failed while polling", "consequence", "failure"),
        ("falling back to simple order", "noise", "evidence"),
        ("non-fatal async event", "noise", "evidence"),
        ("pass NULL socket", "observation", "transport"),
        ("Unknown netDevs policy", "observation", "environment"),
        ("cudaIpcGetMemHandle failed", "observation", "device"),
        ("MemManager: Already suspended", "observation", "environment"),
        ("RAS received unknown", "observation", "evidence"),
        ("Unknown pattern for collective", "observation", "failure"),
    ],
)
def test_what_a_warning_is(words: str, role: str, family: str) -> None:
    """A cause, an effect, nothing at all, or honestly only what it is about."""
    found = {
        rule for warn in warns() if words in warn.line for rule in [rule_of(warn.code)] if rule
    }
    assert {(rule.role, rule.family) for rule in found} == {(role, family)}
