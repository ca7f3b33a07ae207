"""What the supervisor takes from a verdict: whom to spare, and why."""

from __future__ import annotations

import errno
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from report_samples import never_joined

from unhang.casedir.manifest import create_case, save_file
from unhang.report import Decision, Finding, Report, Site
from unhang.run.incident.acting import why_spared
from unhang.run.incident.closing import closing_line, ending_line, first_line
from unhang.run.incident.handling import NodeIncident, What
from unhang.run.incident.judge import _from_here
from unhang.run.incident.judging import _answer, judge
from unhang.run.incident.verdict import Verdict, sent, taken, verdict_of

EXAMPLE = Path(__file__).parents[3] / "examples" / "never-joined-armed" / "dumps"
LOW, HIGH = {"confidence": "low"}, {"confidence": "high"}


def verdict_from(
    *causes: dict[str, Any],
    action: str = "",
    looked_at: Sequence[tuple[int, int]] | None = None,
    **decided: Any,  # noqa: ANN401 - fields of a decision
) -> Verdict:
    """A verdict as it arrives: of each cause its confidence, its culprits and who moves."""
    findings = tuple(
        Finding(id=f"f{i}", code="UH101", role="cause", summary="", **cause)
        for i, cause in enumerate(causes)
    )
    told: dict[str, Any] = {"action": action, "reason": "", "confidence": "medium", **decided}
    report = Report(
        "problem", "", findings=findings, decision=Decision(**told) if action or decided else None
    )
    return taken(sent(verdict_of(report, "", looked_at)).encode(), Path("case"))


@pytest.mark.parametrize(
    ("looked_at", "culprits", "spared"),
    [
        ([(0, 3)], [(4, 5)], True),  # of a node that was not looked at
        ([(0, 3)], [(3, 4)], False),
        ([(0, 3)], [(4,), (2,)], False),
        ([(0, 3)], [(4,), ()], False),
        ([], [(2, 3)], True),  # a launcher waits for another node
        ([], [()], True),
        (None, [(4,)], False),
    ],
)
def test_a_job_is_not_ended_for_ranks_that_nobody_has_looked_at(
    looked_at: list[tuple[int, int]] | None,
    culprits: list[tuple[int, ...]],
    spared: bool,  # noqa: FBT001 - a table of expectations
) -> None:
    """However sure a cause is: they may be healthy, and their supervisor late."""
    causes = [{**HIGH, "culprits": named} for named in culprits]
    told = why_spared(verdict_from(*causes, looked_at=looked_at), "kill", 60.0)
    assert ("the awaited nodes sent no evidence" in told) is bool(told) is spared


@pytest.mark.parametrize(
    ("causes", "action", "why"),
    [
        ([LOW], "", "low confidence"),
        ([{**LOW, "culprits": (1,)}], "", "low confidence"),
        ([{**LOW, "culprits": (1,)}], "wait", "the decision is not to end"),
        ([HIGH], "look-first", ""),
        ([LOW, HIGH], "", ""),
        ([{**LOW, "culprits": (1,), "moving": (1,)}], "", "rank 1 moves"),
        ([{**LOW, "culprits": (2,), "pausing": (2,)}], "", "rank 2 may only pause"),
    ],
)
def test_a_job_is_not_ended_on_a_guess(causes: list[dict[str, Any]], action: str, why: str) -> None:
    """All may sleep until a time that was set, or somebody may go on by itself."""
    spared = why_spared(verdict_from(*causes, action=action), "kill", 60.0)
    assert why in spared
    assert bool(spared) is bool(why)


@pytest.mark.parametrize(
    ("site", "place"),
    [
        ({"after": ""}, "rank 2 at src/data.py:31; "),
        ({"after": "all_reduce #3"}, "rank 2 last seen at src/data.py:31; "),
        ({"role": "victim"}, ""),
    ],
)
def test_a_run_ends_with_its_verdict(site: dict[str, Any], place: str) -> None:
    """One line: what, where, and which case; how the command ended, where it ended well."""
    told = {"role": "culprit", "file": "/home/u/src/data.py", "line": 31, **site}
    verdict = verdict_from({**HIGH, "sites": (Site(ranks=(2,), function="load", **told),)})
    verdict = replace(verdict, summary="Rank 2 never came.\x1b[2J")
    line = f"PROBLEM  Rank 2 never came.\\x1b[2J ({place}case: case)"
    assert closing_line(verdict, 143) == line
    assert closing_line(verdict, 0) == f"the command succeeded, after: {line}"


@pytest.mark.parametrize(
    ("changed", "is_said"),
    [
        ({}, True),
        ({"case": Path("second")}, False),
        ({"confidence": "low"}, False),
        ({"action": "wait"}, False),
        ({"status": "insufficient"}, False),
    ],
)
def test_a_run_ends_with_its_first_incident_too(changed: dict[str, Any], *, is_said: bool) -> None:
    """After a restart the last verdict is often what the restart met, and not the reason for it."""
    last = Verdict("", "problem", "The restart met an old store.", case=Path("second"))
    first = Verdict("", "problem", "Rank 1 raised KeyError.", confidence="high", case=Path("one"))
    said = first_line(replace(first, **changed), last)
    assert said == ("first: PROBLEM  Rank 1 raised KeyError. (case: one)" if is_said else "")
    assert first_line(None, last) == ""


def test_without_a_verdict_the_case_is_named_at_the_end(tmp_path: Path) -> None:
    """Judging failed, or was not waited for; without a case there is nothing to say."""
    assert closing_line(_answer(tmp_path, b"", b"broken"), 1) == (
        f"there is no verdict (case: {tmp_path})"
    )
    assert closing_line(Verdict(""), 1) == ""


@pytest.mark.parametrize(
    ("decided", "left", "why"),
    [
        ({"moving": (3,)}, (), "rank 3 moves"),
        ({"pausing": (0, 3)}, (), "ranks 0,3 may only pause"),
        ({}, (0, 2), "ranks 0,2 have left the call"),
        ({"reason": "unsure", "confidence": "low"}, (), "not enough to act on"),
        ({"reason": "not-enough-evidence", "confidence": "low"}, (), "not enough to act on"),
        ({"reason": "idle", "confidence": "low"}, (), "may have nothing to do"),
        ({"reason": "away"}, (), ""),
    ],
)
@pytest.mark.parametrize("on_hang", ["kill", "keep"])
def test_ranks_that_no_cause_blames_keep_a_job_alive(
    decided: dict[str, Any], left: tuple[int, ...], why: str, on_hang: str
) -> None:
    """Any rank outside of a call may make it go on, and a call that has failed holds no rank."""
    cause = {**HIGH, "culprits": (1,)}
    verdict = verdict_from(cause, action="look-first", **decided)
    spared = why_spared(verdict, on_hang, 60.0, left)
    assert why in spared
    assert bool(spared) is bool(why)


def test_a_verdict_arrives_as_it_was_sent() -> None:
    """Every field but the case, which the supervisor knows; also what no encoding has."""
    verdict = Verdict(
        "all of it: \udcff \u00fc\n", "problem", "Rank 2.", (1, 3), (2,), "restart", guessed=True,
        reason="ended", decision="Restart.", place="rank 2 at a.py:1", unseen=True,
    )  # fmt: skip
    line = sent(replace(verdict, case=Path("elsewhere")))
    assert taken(line.encode("ascii"), Path("here")) == replace(verdict, case=Path("here"))


@pytest.mark.parametrize("out", [b"", b"a warning\n", b"{}", b'{"text": 1}', b'{"text": "cut'])
def test_what_is_no_answer_is_no_verdict(out: bytes) -> None:
    """The process has died, or something else has spoken: its last word says why."""
    verdict = _answer(Path("case"), out, b"Traceback\nMemoryError: too much\n")
    assert verdict == Verdict("no verdict: MemoryError: too much\n", case=Path("case"))


def test_a_report_of_before_is_no_answer(tmp_path: Path) -> None:
    """What lies in the case is of an earlier look; this one could not be judged."""
    save_file(tmp_path / "report.json", b'{"status": "problem", "findings": [], "summary": "old"}')
    verdict = judge(tmp_path, (), lambda: True)
    assert (verdict.status, verdict.summary) == ("", "")
    assert verdict.text.startswith("no verdict: ")


def test_a_disk_that_takes_no_report_does_not_cost_the_verdict(tmp_path: Path) -> None:
    """The answer comes by itself, and does not wait for the files."""
    shutil.copytree(EXAMPLE, tmp_path / "dumps")
    (tmp_path / "report.json").mkdir()
    verdict = judge(tmp_path, (), lambda: True)
    assert verdict.status == "problem"
    assert verdict.summary in " ".join(verdict.text.split())


def test_two_looks_at_one_incident_point_to_each_other(tmp_path: Path) -> None:
    """The first says where it was looked at again, the second where it was before."""
    context = SimpleNamespace(run="run-1")
    first, second = (
        NodeIncident(context, What("hang", "stuck"), case=create_case(tmp_path, "job", now_s))  # type: ignore[arg-type]  # what is asked of it
        for now_s in (1.0, 70.0)
    )
    second.follows = first
    assert first.case is not None
    assert second.case is not None
    (note,) = second._tie_to_first()
    assert first.case.name in note
    (ending,) = (first.case / "parts").glob("*.end.json")
    assert second.case.name in ending.read_text()
    assert first._tie_to_first() == []


def test_commands_name_a_case_as_it_is_typed_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below the working directory; elsewhere with its whole path."""
    monkeypatch.chdir(tmp_path)
    case = tmp_path / "unhang-cases" / "20261128-train"
    assert str(_from_here(case)) == "unhang-cases/20261128-train"
    assert _from_here(Path("/var/cases/a")) == Path("/var/cases/a")


def test_a_verdict_tells_where_its_culprits_are_and_how_sure_it_is() -> None:
    """One host, or none: alerts are routed by it."""
    report = never_joined()
    told = verdict_of(report, "")
    assert (told.confidence, told.host) == ("high", "node01")
    both = replace(report.findings[0], culprits=(0, 7))
    ranks = (replace(report.ranks[0], host="node00"), *report.ranks[1:])
    assert verdict_of(replace(report, findings=(both,), ranks=ranks), "").host == ""
    assert verdict_of(replace(report, findings=()), "").confidence == ""


def test_a_limit_of_processes_takes_the_verdict_and_not_the_watch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As under ulimit -u: the job is watched on, and where its evidence lies is said."""

    def refused(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refused)
    verdict = judge(tmp_path, (), lambda: True)
    assert verdict.case == tmp_path
    assert "Resource temporarily unavailable" in verdict.text
    assert f"unhang diagnose {tmp_path}" in verdict.text


@pytest.mark.parametrize("code", [0, 1, 7, 130, 143, 129])
def test_an_end_in_order_needs_no_words(code: int) -> None:
    """By itself, by Ctrl-C, by SIGTERM."""
    assert ending_line(code) == ""


def test_a_signal_that_ends_no_job_in_order_is_said() -> None:
    """A shell would say it, and unhang stands between."""
    assert ending_line(139).startswith("SIGSEGV ended the command; ")
    assert "memory" in ending_line(137)
