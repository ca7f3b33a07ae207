"""What a case says beside its evidence: code, whose it is, and what was before."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from report_samples import never_joined

from unhang.context.around import with_surroundings
from unhang.context.differing import changed_between
from unhang.redact import Redactor
from unhang.report import Decision, Report, Unlike, UnlikeSide
from unhang.reports import Look, render
from unhang.surroundings import revision_of

DAY_NS = 24 * 3600 * 10**9
NOW_NS = 1_790_000_000 * 10**9


def excerpt(file: str, line: int, text: str, **more: object) -> dict[str, object]:
    """An excerpt of one line and its neighbours, as it is saved."""
    lines = ["before = 1", f"    {text}", "after = 2"]
    return {"file": file, "line": line, "first": line - 1, "lines": lines, **more}


def case_of(
    root: Path, name: str, report: Report, days: float = 0.0, source: object = None
) -> Path:
    """A case directory, so many days before now."""
    case = root / name
    (case / "env").mkdir(parents=True)
    time_ns = NOW_NS - int(days * DAY_NS)
    manifest = {
        "job": {"job": "llama-70b", "attempt": 1, "command": ["torchrun", "train.py", "--lr", "1"]},
        "incident": {"time_ns": time_ns, "ran_s": 7200.0},
        "nodes": [{"host": "node01"}, {"host": "node00"}],
    }
    (case / "manifest.json").write_text(json.dumps(manifest))
    node = {"python": "3.11.7", "torch": "2.13.0", "revision": "0123456789 (main)"}
    (case / "env" / "node-run.json").write_text(json.dumps(node))
    if source is not None:
        (case / "env" / "source-run.json").write_text(json.dumps(source))
    incident = replace(report.incident, newest_ns=time_ns)
    (case / "report.json").write_text(render("json", replace(report, incident=incident)))
    return case


def shown(report: Report, *, full: bool = False) -> str:
    """The report on a terminal."""
    return render("text", report, None, Look(100, full=full))


def test_the_code_stands_beside_the_verdict(tmp_path: Path) -> None:
    """One line each in short, with its neighbours in full, in every format for people."""
    sites = never_joined().findings[0].sites
    saved = [
        excerpt(site.file, site.line, f"code_of_{site.role}()", changed=site.role == "culprit")
        for site in sites
    ]
    case = case_of(tmp_path, "a", never_joined(), source={"excerpts": saved})
    report = with_surroundings(never_joined(), case)
    site = next(site for site in sites if site.role == "culprit")
    brief = shown(report)
    assert f"{site.line} │ code_of_culprit()" in brief
    assert "│ code_of_victim()" in brief
    assert "before = 1" not in brief
    full = shown(report, full=True)
    assert f"> {site.line} │     code_of_culprit()" in full
    assert "before = 1" in full
    assert "the file is newer than the process" in full
    assert "code_of_culprit()" in render("markdown", report)
    assert "code_of_culprit()" in render("html", report)
    assert json.loads(render("brief-json", report))["source"] == "code_of_culprit()"


def test_code_of_another_line_or_of_two_kinds_is_not_shown(tmp_path: Path) -> None:
    """Nodes may have different files; what does not fit is left out."""
    site = never_joined().findings[0].sites[0]
    for number, saved in enumerate(
        (
            [excerpt(site.file, site.line + 1, "x()")],
            [excerpt(site.file, site.line, "x()"), excerpt(site.file, site.line, "y()")],
            [excerpt(site.file, site.line, "x()", first=site.line + 5)],
            [{"file": 1}, 7, None],
            "spoilt",
        )
    ):
        case = case_of(tmp_path, str(number), never_joined(), source={"excerpts": saved})
        report = with_surroundings(never_joined(), case)
        assert all(each.source is None for each in report.findings[0].sites)


def test_no_file_outside_of_the_case_is_read(tmp_path: Path) -> None:
    """A stranger's case names files of this machine, or leads to them."""
    site = never_joined().findings[0].sites[0]
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps({"excerpts": [excerpt(site.file, site.line, "secret()")]}))
    case = case_of(tmp_path / "cases", "a", never_joined())
    (case / "env" / "source-run.json").symlink_to(mine)
    assert "secret()" not in shown(with_surroundings(never_joined(), case))


def test_whose_it_is_stands_at_the_top(tmp_path: Path) -> None:
    """Job, hosts, time, command, revision, versions, case: in two lines."""
    case = case_of(tmp_path, "20260926-job", never_joined())
    report = with_surroundings(never_joined(), case)
    for page in (shown(report), shown(report, full=True), render("html", report)):
        assert "job llama-70b, attempt 1, 8 ranks on node00, node01, " in page
        assert "after 2 hours" in page
        assert "torchrun train.py --lr 1, revision 0123456789 (main), torch 2.13.0" in page
    assert with_surroundings(never_joined(), tmp_path).identity is None


def test_the_same_was_there_before(tmp_path: Path) -> None:
    """By kind and line; the hosts that come again, and since when; later cases do not count."""
    for number, days in enumerate((9.0, 2.0, -1.0)):
        case_of(tmp_path, f"old-{number}", never_joined(), days)
    other = replace(never_joined().findings[0], code="UH301")
    case_of(tmp_path, "other", replace(never_joined(), findings=(other,)), 1.0)
    now = case_of(tmp_path, "now", never_joined())
    before = with_surroundings(never_joined(), now).before
    assert before is not None
    assert (before.times, before.looked_at) == (3, 3)
    assert [(each.host, each.times) for each in before.hosts] == [("node01", 3)]
    assert "3 times at data.py:31 with this one, 3 times on node01" in shown(
        with_surroundings(never_joined(), now)
    )
    assert "the last 2 days before" in shown(with_surroundings(never_joined(), now))


def test_a_job_that_comes_back_is_to_stop(tmp_path: Path) -> None:
    """The third incident of one job at one line, by the cases beside it."""
    report = never_joined()
    decision = Decision("restart", "ended", "high", text="Restart the job.")
    report = replace(report, decision=decision)
    named = replace(report, incident=replace(report.incident, job_id="llama-70b"))
    for days in (3.0, 2.0):
        case_of(tmp_path, f"{days}", named, days)
    told = with_surroundings(named, case_of(tmp_path, "now", named))
    assert told.decision is not None
    assert (told.decision.action, told.decision.reason) == ("stop", "comes-again")
    assert told.before is not None
    assert told.before.place in told.decision.text
    assert "Stop restarting the job" in shown(told)


def test_an_earlier_look_at_the_same_run_is_not_before(tmp_path: Path) -> None:
    """It began two hours before: what another attempt left within them counts."""
    case_of(tmp_path, "first-look", never_joined(), 0.01)
    now = case_of(tmp_path, "now", never_joined())
    assert with_surroundings(never_joined(), now).before is None
    incident = replace(never_joined().incident, attempt="7")
    case_of(tmp_path, "last-attempt", replace(never_joined(), incident=incident), 0.02)
    before = with_surroundings(never_joined(), now).before
    assert before is not None
    assert before.times == 2


def test_history_may_lie_elsewhere(tmp_path: Path) -> None:
    """And what is spoilt there costs nothing."""
    case_of(tmp_path / "archive", "old", never_joined(), 3.0)
    (tmp_path / "archive" / "bad").mkdir()
    (tmp_path / "archive" / "bad" / "report.json").write_text("{")
    now = case_of(tmp_path / "cases", "now", never_joined())
    assert with_surroundings(never_joined(), now).before is None
    told = with_surroundings(never_joined(), now, [tmp_path / "archive", tmp_path / "gone"])
    assert told.before is not None
    assert told.before.times == 2


@pytest.mark.parametrize("packed", [False, True])
def test_the_revision_is_read_without_git(tmp_path: Path, *, packed: bool) -> None:
    """From a folder below, a branch with a slash, refs packed or not; elsewhere there is none."""
    git = tmp_path / "repo" / ".git"
    (git / "refs" / "heads" / "my").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/my/branch\n")
    commit = "4f2a9c1b" * 5
    if packed:
        (git / "packed-refs").write_text(f"# pack-refs\n{commit} refs/heads/my/branch\n")
    else:
        (git / "refs" / "heads" / "my" / "branch").write_text(f"{commit}\n")
    inside = tmp_path / "repo" / "src"
    inside.mkdir()
    assert revision_of(str(inside)) == "4f2a9c1b4f (my/branch)"
    (git / "HEAD").write_text(f"{commit}\n")
    assert revision_of(str(inside)) == "4f2a9c1b4f"
    (git / "HEAD").write_text("spoilt\n")
    assert revision_of(str(inside)) == ""


def collected(case: Path, host: str, ranks: dict[int, dict[str, object]], torch: str) -> None:
    """What was collected of the ranks of a node, as `unhang collect` saves it."""
    (case / "env" / host).mkdir(parents=True)
    (case / "env" / host / "node.json").write_text(json.dumps({"torch": torch, "load": [1, 2]}))
    (case / "env" / host / "ranks.json").write_text(json.dumps(ranks))


def rank_of(number: int, *more: str, **environment: str) -> dict[str, object]:
    """A process with the variables and arguments that differ on every rank, and some more."""
    own = {"RANK": str(number), "CUDA_VISIBLE_DEVICES": str(number), "OMP_NUM_THREADS": "1"}
    command = ["python", "train.py", "--local-rank", str(number), f"--node_rank={number}", *more]
    return {"command": command, "environment": {**own, **environment}}


def test_what_ranks_have_unlike_is_told(tmp_path: Path) -> None:
    """Versions, variables and arguments of some; not what each rank has of its own."""
    report = never_joined()
    case = case_of(tmp_path, "one", report)
    (case / "env" / "node-run.json").unlink()
    alike = {n: rank_of(n, "--lr", "1", NCCL_ALGO="Ring") for n in range(3)}
    collected(case, "node01", alike, "2.13.0")
    collected(case, "node02", {3: rank_of(3, "--lr", "2")}, "2.12.0")
    told = with_surroundings(report, case)
    found = {d.name: [(side.value, side.ranks) for side in d.sides] for d in told.differences}
    assert found == {
        "arguments": [("python train.py --lr 1", (0, 1, 2)), ("python train.py --lr 2", (3,))],
        "torch": [("2.13.0", (0, 1, 2)), ("2.12.0", (3,))],
        "NCCL_ALGO": [("Ring", (0, 1, 2)), ("", (3,))],
    }
    assert "NCCL_ALGO: Ring on ranks 0-2; not set on rank 3" in " ".join(shown(told).split())


def test_redaction_drops_what_only_the_user_knows() -> None:
    """Values of variables that no library reads, and words of a command, as in the case itself."""
    sides = {"NCCL_ALGO": "Ring", "ROLE_NOTE": "our own", "arguments": "a.py --key our@x"}
    told = [Unlike(name, (UnlikeSide(value, (0, 1)),)) for name, value in sides.items()]
    clean = Redactor().report(replace(never_joined(), differences=tuple(told)))
    values = [each.sides[0].value for each in clean.differences]
    assert values[0] == "Ring"
    assert not any("our" in value for value in values)


@pytest.mark.parametrize("saved", [[], {"0": []}, {"x": {}}, {"0": {"environment": 1}}, "\ud800"])
def test_what_is_no_description_of_ranks_says_nothing(tmp_path: Path, saved: object) -> None:
    """Files of a case are input."""
    report = never_joined()
    case = case_of(tmp_path, "one", report)
    (case / "env" / "node01").mkdir()
    (case / "env" / "node01" / "ranks.json").write_text(json.dumps(saved))
    assert with_surroundings(report, case).differences == ()
    assert list(changed_between(case, case)) == []


def test_two_cases_tell_what_changed(tmp_path: Path) -> None:
    """What most ranks of the one have otherwise than those of the other."""
    cases = [tmp_path / name for name in ("one", "two")]
    for case, rate in zip(cases, ("1", "2"), strict=True):
        collected(case, "node01", {n: rank_of(n, "--lr", rate) for n in range(2)}, f"2.{rate}")
    assert list(changed_between(*cases)) == [
        ("arguments", "python train.py --lr 1", "python train.py --lr 2"),
        ("torch", "2.1", "2.2"),
    ]
