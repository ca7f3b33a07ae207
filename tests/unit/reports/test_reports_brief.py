from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from case_samples import stuck_case
from report_samples import SAMPLES, never_joined
from syrupy.assertion import SnapshotAssertion

from unhang.analysis import diagnose
from unhang.casedir.place import Place
from unhang.ingest import load
from unhang.report import GroupRef, RankStatus, Report
from unhang.reports import Look, render, with_steps
from unhang.reports.content.next_steps import next_steps

SHORT = Look(full=False)
PLACE = Place(case=("my dumps", "--world-size", "4"), logs=("train.log",))


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_the_short_report(name: str, snapshot: SnapshotAssertion) -> None:
    """What a terminal shows by default, pinned."""
    report = with_steps(SAMPLES[name](), stuck_case(), PLACE)
    assert render("text", report, None, SHORT) == snapshot


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - {"hostile"}))
def test_it_fits_where_somebody_looks(name: str) -> None:
    """About a dozen lines, however many ranks, at a usual width."""
    page = render(
        "text", with_steps(SAMPLES[name](), stuck_case(), PLACE), None, Look(100, full=False)
    )
    assert len(page.splitlines()) <= 17


def test_commands_are_never_broken_in_two() -> None:
    """A command that is longer than the page is wide stays one line, to be copied."""
    report = with_steps(diagnose(stuck_case()), stuck_case(), Place(case=("d" * 90,)))
    page = render("text", report, None, SHORT)
    assert all(step.command in page for step in report.next[:3])


def test_places_are_quoted_and_options_repeated() -> None:
    """The command reads what was read, and a shell takes it apart as it was put together."""
    case = stuck_case()
    first = next_steps(diagnose(case), case, PLACE)[0]
    words = shlex.split(first.command)
    assert words[:5] == ["unhang", "entries", "my dumps", "--world-size", "4"]


def test_without_a_place_nothing_is_guessed() -> None:
    """A redacted report names no directory, and a healthy one needs no step."""
    case = stuck_case()
    commands = [step.command for step in next_steps(diagnose(case), case, Place())]
    assert commands
    assert not any(command.startswith("unhang entries") for command in commands)
    assert next_steps(replace(never_joined(), status="healthy"), None, PLACE) == ()


def test_what_dumps_cannot_know_is_said_and_marked() -> None:
    """The line of a rank that never came is where it was last seen, not where it stands."""
    case = stuck_case()
    dumps = tuple(replace(dump, main_stack=()) for dump in case.dumps)
    report = diagnose(replace(case, dumps=dumps, samples=()))
    sites = [site for site in report.findings[0].sites if 2 in site.ranks]
    assert [site.after for site in sites] == ["all_reduce #2 of default_pg (0)"]
    page = " ".join(render("text", report, None, SHORT).split())
    assert "last seen leaving all_reduce #2 of default_pg (0) in train_step at" in page
    assert "the dumps do not show where it is now" in page
    placed = diagnose(case).findings[0].sites
    assert [site.after for site in placed if 2 in site.ranks] == [""]


def test_a_hostile_name_enters_no_command() -> None:
    """Hosts and groups come from dumps: one that is an option or moves a cursor is left out."""
    case = stuck_case()
    finding = replace(diagnose(case).findings[0], family="device", code="UH105")
    for name in ("-oProxyCommand=x", "a\x1b[2J", "node 1", "$(id)"):
        group = GroupRef(name, "", 4)
        status = RankStatus(2, "culprit", host=name)
        report = Report("problem", "x", findings=(replace(finding, group=group),), ranks=(status,))
        groups = tuple(replace(each, name=name) for each in case.groups)
        steps = next_steps(report, replace(case, groups=groups), PLACE)
        assert steps
        assert not any(name in step.command for step in steps)


def shortly(path: Path) -> str:
    """What the terminal shows of a real capture."""
    case = load([path])
    report = with_steps(diagnose(case), case, Place((str(path),)))
    return render("text", report, case, Look(100, full=False))


def test_both_sides_of_a_circle_are_shown_with_their_lines() -> None:
    """One line alone would hide where the other half stands."""
    page = shortly(Path("examples/crossed-order"))
    assert "ranks 0,3 in step_by_luck at job/crossed_order.py:36" in page
    assert "ranks 1-2 in step_by_luck at job/crossed_order.py:39" in page


def test_who_waits_elsewhere_is_told_apart() -> None:
    """Who waits for the culprit through others is not put at the line of those who wait for it."""
    page = shortly(Path("tests/data/nccl/2.4.1/mesh_stall-pipe.tar.gz"))
    assert "waiting rank 2 in mesh_stall" in " ".join(page.split())
    assert "and ranks 0-1" in page


def test_a_call_that_was_never_launched_is_not_shown_as_completed() -> None:
    """NCCL's recorder of 2.13 writes so before there is anything to complete."""
    page = shortly(Path("tests/data/nccl/2.13.0/enqueue_hangs-asked.tar.gz"))
    assert "was not launched" in page
    assert "completed" not in page


def test_without_evidence_a_look_at_the_living_is_advised() -> None:
    """Where dumps cannot tell, stacks can."""
    assert "unhang stacks  # on a node" in shortly(Path("examples/p2p-cycle"))
