"""What many incidents have in common, and how likely that is by chance."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_samples import hostile, never_joined

from unhang.cli.main import main
from unhang.context.recalled import Past, cases_in, incidents_of
from unhang.context.tallies import history_of
from unhang.reports import render
from unhang.serve.pages import metrics
from unhang.serve.past import facts_of_report, tried

WEEK_S = 7 * 24 * 3600.0


def past(number: int, culprit: str, hosts: int = 8, kind: str = "UH101") -> Past:
    """An incident a week after the one before."""
    names = tuple(f"node{n:02}" for n in range(hosts))
    return Past(
        path=Path(f"case-{number}"),
        time_s=1_763_640_000.0 + number * WEEK_S,
        job_id="",
        status="problem",
        summary="x",
        code=kind,
        slug="never-joined",
        hosts=names,
        culprit_hosts=(culprit,),
        places=("train.py:88",),
    )


def test_a_host_that_comes_again_stands_out() -> None:
    """Three of four among eight hosts is hardly chance; once is nothing to tell."""
    pasts = [past(0, "node03"), past(1, "node03"), past(2, "node05"), past(3, "node03")]
    first, second = history_of(pasts).hosts
    assert (first.name, first.count, first.of) == ("node03", 3, 4)
    assert first.chance is not None
    assert first.chance == pytest.approx(1 - (1 - (4 * 7 + 1) / 8**4) ** 8)
    assert (second.name, second.count, second.chance) == ("node05", 1, None)
    assert list(first.weeks.values()) == [1, 1, 1]


def test_with_one_host_nothing_is_chance() -> None:
    """Where there is one host it is always to blame: that says nothing."""
    (only,) = history_of([past(n, "node00", hosts=1) for n in range(3)]).hosts
    assert only.chance is None


def test_incidents_with_one_host_take_no_chance_away() -> None:
    """They count for how often, and say nothing of chance."""
    pasts = [past(n, "node03") for n in range(3)]
    (alone,) = history_of(pasts).hosts
    (more,) = history_of([*pasts, past(3, "node03", hosts=4), past(4, "node03", hosts=1)]).hosts
    assert (alone.count, more.count) == (3, 5)
    assert more.chance is not None
    assert alone.chance is not None
    assert more.chance < alone.chance


def test_chance_grows_with_the_number_of_hosts_that_are_looked_at() -> None:
    """Among a thousand hosts one is blamed twice in fifty incidents by accident."""
    pasts = [past(n, f"node{n:02}", hosts=1000) for n in range(48)]
    pasts += [past(n, "node07", hosts=1000) for n in range(48, 50)]
    first = history_of(pasts).hosts[0]
    assert first.chance is not None
    few = history_of([past(n, "node03", hosts=1000) for n in range(3)]).hosts[0]
    assert few.chance is not None
    assert few.chance < 1e-4
    assert first.chance > 0.001


def test_cases_of_one_run_are_one_incident() -> None:
    """A second look, and a case of another node: the one that tells most counts, of all hosts."""
    first = replace(past(0, "node03", hosts=4), job_id="j", ran_s=3600.0)
    looks = [
        replace(first, status="insufficient", culprit_hosts=(), hosts=("node09",)),
        first,
        replace(first, confidence="high", time_s=first.time_s + 1800, culprit_hosts=("node01",)),
    ]
    (one,) = incidents_of(looks)
    assert one.culprit_hosts == ("node01",)
    assert one.hosts == ("node00", "node01", "node02", "node03", "node09")
    found = history_of([*looks, past(1, "node01")])
    assert found.counted == "2 incidents, 2 problems, in 4 cases"
    assert [(host.name, host.count) for host in found.hosts] == [("node01", 2)]
    assert 'unhang_cases{status="problem"} 1' in metrics(looks, 0)
    assert 'unhang_host_culprit_cases{host="node03"}' not in metrics(looks, 0)


@pytest.mark.parametrize(
    ("other", "n"),
    [
        ({}, 1),
        ({"attempt": "1"}, 2),
        ({"job_id": "k"}, 2),
        ({"time_s": 1_763_640_000.0 + 601}, 2),
        ({"time_s": 1_763_640_000.0 + 601, "ran_s": 601.0}, 1),
        ({"time_s": 1_763_640_000.0 + 601, "ran_s": 600.0}, 2),
    ],
)
def test_other_runs_are_other_incidents(other: dict[str, Any], n: int) -> None:
    """Another attempt, another job, or one that began after the earlier case was made."""
    first = replace(past(0, "node03"), job_id="j", attempt="0")
    for cases in ([first, replace(first, **other)], [replace(first, **other), first]):
        assert len(incidents_of(cases)) == n


def test_cases_of_no_known_job_are_counted_each() -> None:
    """Nothing tells that they are one."""
    assert len(incidents_of([past(0, "node03"), past(0, "node03")])) == 2


def test_history_that_cannot_be_read_is_no_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing read is exit code 3; a part of it is told, with what chance means."""
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "report.json").write_text("{")
    assert main(["history", str(tmp_path)]) == 3
    assert "bad: " in capsys.readouterr().err
    report = json.loads(render("json", never_joined()))
    report["ranks"][0]["host"] = "node09"
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        report["incident"]["attempt"] = str(number)
        (tmp_path / str(number) / "report.json").write_text(json.dumps(report))
    assert main(["history", str(tmp_path)]) == 0
    assert "By chance: " in capsys.readouterr().out


def test_facts_come_from_the_report() -> None:
    """Hosts, lines and kind of the first cause; a hostile report breaks nothing."""
    found = facts_of_report(Path(), json.loads(render("json", never_joined())))
    assert (found.code, found.culprits, found.culprit_hosts) == ("UH101", (7,), ("node01",))
    assert any(place.endswith("data.py:31") for place in found.places)
    assert facts_of_report(Path(), hostile()).status == "problem"


def test_what_is_no_report_is_told(tmp_path: Path) -> None:
    """A file that somebody spoilt costs its case, not the history."""
    for name, text in {"a": "{", "b": "[]", "c": '{"status": 1, "summary": ""}'}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_text(text)
    cases = cases_in([tmp_path])
    assert len(cases) == 3
    assert all(isinstance(tried(case), str) for case in cases)


def test_an_empty_directory_holds_no_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is no case that cannot be read, of which a metric tells."""
    assert cases_in([tmp_path]) == []
    assert main(["history", str(tmp_path)]) == 3
    assert "no case lies there" in capsys.readouterr().err


def test_the_command_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As text and as JSON; cases without a report are judged."""
    for number in range(2):
        (tmp_path / f"case-{number}").mkdir()
        incident = replace(never_joined().incident, attempt=str(number))
        text = render("json", replace(never_joined(), incident=incident))
        (tmp_path / f"case-{number}" / "report.json").write_text(text)
    assert main(["history", str(tmp_path)]) == 0
    page = capsys.readouterr().out
    assert "2 incidents, 2 problems" in page
    assert "node01" in page
    assert main(["history", str(tmp_path), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["hosts"][0]["count"] == 2
    assert main(["history", str(tmp_path / "none")]) == 3


def test_cases_one_directory_deeper_are_counted(tmp_path: Path) -> None:
    """A directory of directories of cases: none is passed over in silence."""
    for name in ("a", "jobs/b", "jobs/c"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "report.json").write_text(render("json", never_joined()))
    assert {path.name for path in cases_in([tmp_path])} == {"a", "b", "c"}


def test_plain_dumps_are_dated_by_their_calls() -> None:
    """A directory is younger than the hang that is copied into it."""
    report = json.loads(render("json", never_joined()))
    report["incident"]["newest_ns"], report["job"]["last_ns"] = 0, 1_700_000_000 * 10**9
    assert facts_of_report(Path(), report).time_s == 1_700_000_000
