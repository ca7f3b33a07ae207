"""Every rule has a line that fires it and one that must not; codes and slugs are unique."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from anchor_reach import unannounced
from log_fuzz import DONE, judged

from lab.rules.rows import FILES, PLACE, ROWS, as_json, rows_of
from unhang.logs.addresses import VIRTUAL
from unhang.logs.files import find_logs
from unhang.logs.rules import RULES, rule_of
from unhang.logs.rules.base import LogRule
from unhang.logs.rules.known import TAKES_VIRTUAL
from unhang.logs.rules.only import ONLY
from unhang.logs.rules.sxids import SXIDS
from unhang.logs.rules.xids import XIDS, role_of_xid
from unhang.logs.scan import scan_logs

GAPS = {"UH720", "UH793"}
"""Rules of which a line may match that no anchor announces, and why that is well.

UH720: an exit code of 137 can be written in more ways than launchers do, and an anchor for all of
them would be "137". UH793: the last line of a traceback is told by its header, whatever it says.
"""


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
    assert rule.below
    assert rule.below.mark
    assert rule.below.mark in rule.below.pattern.replace("\\", "")


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.code)
def test_every_alternative_has_an_anchor(rule: LogRule) -> None:
    """A line that matches and has no anchor is never looked at."""
    assert bool(unannounced(rule.pattern, rule.anchors)) == (rule.code in GAPS)


def test_a_lack_of_an_anchor_is_seen() -> None:
    """In alternatives, in what may be left out, and in what a class allows."""
    assert unannounced("gone (?:home|away)", ["home"]) == ["gone away"]
    assert unannounced("gone (?:far )?away", ["far away"]) == ["gone away"]
    assert unannounced(r"[Gg]one \w+", ["gone"]) == ["Gone ~~~"]
    assert unannounced("gone (?=.*away)", ["gone away"]) == ["gone "]
    assert unannounced("gone (?=.*away)", ["away"]) == []


def test_what_an_older_vllm_prints_is_known(tmp_path: Path) -> None:
    """Its line lacks two words of the newer one: the pattern knew that, the anchors did not."""
    path = tmp_path / "vllm.log"
    path.write_text(
        "WARNING 09-06 13:15:04 shm_broadcast.py:404] No available block found in 60 second.\n"
    )
    assert scan_logs(find_logs(path)).events[0].code == "UH7027"


# ------------------------------------------------------------------ rows


def test_rows_json_is_made_of_the_files() -> None:
    """Run python docs/refresh.py."""
    assert ROWS.read_text(encoding="utf-8") == as_json()
    assert sorted(path.stem for path in PLACE.glob("*.toml")) == sorted(FILES)


@pytest.mark.parametrize("name", FILES)
def test_no_blank_of_a_pattern_is_invisible(name: str) -> None:
    """Editors take blanks at the end of a line away; [ ] they leave alone."""
    lines = (PLACE / f"{name}.toml").read_text(encoding="utf-8").split("\n")
    assert [line for line in lines if line != line.rstrip()] == []


def test_lines_and_parts_of_a_row() -> None:
    """Lines are joined without their indentation, and parts are put where they are named."""
    text = """
[parts]
peer = 'rank (?P<rank>\\d{1,6})'
[[rule]]
pattern = '''
  {peer} is
  [ ]gone
  |no {peer}
'''
waits = "a peer"
meaning = "It is gone."
action = "Ask {peer}."
"""
    (row,) = rows_of(text)
    assert row["pattern"] == r"rank (?P<rank>\d{1,6}) is[ ]gone|no rank (?P<rank>\d{1,6})"
    assert row["action"] == r"Ask rank (?P<rank>\d{1,6})."
    assert row["waits"] == {"": "a peer"}


def test_every_condition_belongs_to_a_rule() -> None:
    """And every rule that names one finds it."""
    assert {rule.only for rule in RULES if rule.only} == set(ONLY)


def test_one_idea_of_an_interface_of_one_host() -> None:
    """The rule finds that one was taken; the addresses of all of them are compared elsewhere."""
    assert VIRTUAL in TAKES_VIRTUAL.pattern


def test_patterns_name_each_field_once() -> None:
    """Every pattern compiles."""
    assert all(re.compile(rule.pattern) for rule in RULES)


# ------------------------------------------------------------------ numbers of devices


def test_every_xid_of_nvlink_has_a_meaning() -> None:
    """144 to 150 are links; 45 and 154 only follow; some tell of wear, or of what was corrected."""
    assert all("NVLink" in XIDS[number] for number in range(144, 151))
    roles = {number: role_of_xid(number) for number in XIDS}
    assert {number for number, role in roles.items() if role == "consequence"} == {45, 154}
    hints = {63, 92, 93, 106, 107, 121, 156, 160, 162, 163, 164, 165}
    assert {number for number, role in roles.items() if role == "hint"} == hints


XID = "NVRM: Xid (PCI:0000:04:00): "
SXID = "nvidia-nvswitch1: SXid (PCI:0000:c3:00.0): "


@pytest.mark.parametrize(
    ("line", "code", "role"),
    [
        (f"{XID}144, SAW_MVB Fatal XC0 i0 Link 00 (0x00000001 0x00000002 0x0)", "UH769", "cause"),
        (f"{XID}144, SAW_MVB Nonfatal XC0 i0 Link 00 (0x00000001 0x00000001)", "UH769", "hint"),
        (f"{XID}145, RLW_SRC_TRACK Fatal XC0 i0 Link 00 (0x00000007)", "UH769", "cause"),
        (f"{XID}145, RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000004)", "UH769", "hint"),
        (f"{XID}146, TLW_CTRL Fatal XC0 i0 Link 00 (0x00000009)", "UH769", "cause"),
        (f"{XID}147, TREX Nonfatal XC0 i0 Link 00 (0x0000000e)", "UH769", "hint"),
        (f"{XID}148, NVLPW_CTRL/NVLPW Nonfatal XC0 i0 Link 00 (0x0000000f)", "UH769", "hint"),
        (f"{XID}149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6)", "UH769", "cause"),
        (f"{XID}149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 00 (0x00000013)", "UH769", "hint"),
        (f"{XID}150, MSE_WATCHDOG Fatal XC0 i0 Link 00 (0x00000000)", "UH769", "cause"),
        (f"{XID}79, pid=4711, GPU has fallen off the bus.", "UH769", "cause"),
        (f"{SXID}20034, Fatal, Link 63 LTSSM Fault Up", "UH7030", "cause"),
        (f"{SXID}20034, Severity 1 Engine instance 62 Sub-engine instance 00", "UH7030", "cause"),
        (f"{SXID}20034, Data {{0x50610002, 0x10100030}}", "UH7030", "cause"),
        (f"{SXID}23001, Fatal, Link 12 Always Fatal", "UH7030", "cause"),
        (f"{SXID}11001, Fatal, ingress invalid command", "UH7030", "cause"),
        (
            f"{SXID}12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
            "UH7030",
            "cause",
        ),
        (f"{SXID}19084, Non-fatal, Link 10 AN1 Heartbeat Timeout Error", "UH7048", "hint"),
        (f"{SXID}10002, Severity 5 Engine instance 00 Sub-engine instance 00", "UH7048", "hint"),
        (f"{SXID}28006, Non-fatal, Link 29 MC TS crumbstore MCTO", "UH7048", "hint"),
        (f"{SXID}20009, Non-fatal, Link 28 RX Short Error Rate", "UH7049", "hint"),
        (f"{SXID}22013, Non-fatal, Link 57 Minion Link DLREQ interrupt", "UH7049", "hint"),
        (f"{SXID}12021, Non-fatal, Link 05 egress input ECC limit", "UH7049", "hint"),
        (f"{SXID}99999, Fatal, Link 05 something new", "UH7030", "cause"),
    ],
)
def test_what_drivers_write_of_links(line: str, code: str, role: str, tmp_path: Path) -> None:
    """As drivers print them (mostly in the tests of leptonai/gpud): fatal or not, known or new."""
    path = tmp_path / "dmesg.txt"
    path.write_text(f"[84000.1] {line}\n")
    (event,) = scan_logs(find_logs(path)).events
    assert (event.code, event.role) == (code, role)


def test_the_table_of_switches_is_whole() -> None:
    """All that NVIDIA lists has words, and the fatal ones are causes where the driver says so."""
    assert len(SXIDS) == 93
    for number in SXIDS:
        rule = first_rule(f"{SXID}{number}, Fatal, Link 01 something")
        assert rule
        assert rule.code == "UH7030"
        mild = first_rule(f"{SXID}{number}, Non-fatal, Link 01 something")
        assert mild
        assert (mild.code == "UH7030") == (number in {11004, 12028})


def test_what_a_fault_of_a_switch_says(tmp_path: Path) -> None:
    """The verdict has the meaning of the number; what was corrected is no problem."""
    fatal = f"[84000.1] {SXID}22003, Fatal, Link 12 Minion Halt\n"
    report = judged(tmp_path / "a.log", fatal.encode())
    assert report.status == "problem"
    assert any("whole fabric" in sentence for sentence in report.findings[0].evidence)
    mild = f"loss 2.1\n[84000.1] {SXID}12021, Non-fatal, Link 05 egress input ECC limit\n{DONE}"
    assert judged(tmp_path / "b.log", mild.encode()).status == "healthy"
