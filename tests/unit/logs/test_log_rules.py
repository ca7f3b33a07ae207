"""Every rule has a line that fires it and one that must not; codes and slugs are unique."""

from __future__ import annotations

import pytest

from unhang.logs.files import find_logs
from unhang.logs.rules import RULES, rule_of
from unhang.logs.rules.base import LogRule
from unhang.logs.rules.xids import XIDS, role_of_xid
from unhang.logs.scan import scan_logs


def first_rule(line: str) -> LogRule | None:
    """The rule that the scan would choose for a line: the first whose anchor and pattern fit."""
    fitting = (r for r in RULES if any(a in line for a in r.anchors) and r.search(line))
    return next(fitting, None)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.code)
def test_fires_and_spares(rule: LogRule) -> None:
    """The example line chooses this rule before all others; the near miss does not match it."""
    assert first_rule(rule.fires) is rule
    assert rule.search(rule.spares) is None


def test_there_are_enough_rules() -> None:
    """At least sixty, as promised."""
    assert len(RULES) >= 60


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.code)
def test_the_scan_finds_the_example(
    rule: LogRule, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What fires a rule does so in a file between other lines, and with its code."""
    path = tmp_path_factory.mktemp("logs") / "job.log"
    path.write_text(f"[rank4]: epoch 1\n[rank4]: {rule.fires}\n[rank4]: epoch 2\n")
    events = scan_logs(find_logs(path)).events
    assert rule.code in {event.code for event in events}
    event = next(event for event in events if event.code == rule.code)
    assert event.source == f"{path}:2"
    assert rule_of(event.code) is rule


@pytest.mark.parametrize("rule", [r for r in RULES if r.below], ids=lambda r: r.code)
def test_what_is_read_below_has_a_mark(rule: LogRule) -> None:
    """Without one, the lines below each of thousands of messages would be read again."""
    assert rule.below_mark
    assert rule.below_mark in rule.below.replace("\\", "")


def test_every_xid_of_nvlink_has_a_meaning() -> None:
    """144 to 150 are links; 45 and 154 only follow; 63, 92, 156 and 160 tell of wear."""
    assert all("NVLink" in XIDS[number] for number in range(144, 151))
    roles = {number: role_of_xid(number) for number in XIDS}
    assert {number for number, role in roles.items() if role == "consequence"} == {45, 154}
    assert {number for number, role in roles.items() if role == "hint"} == {63, 92, 156, 160}
