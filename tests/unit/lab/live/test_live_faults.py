from __future__ import annotations

import ast

import pytest

from lab.live.capture import MAX_RANKS, checked_request
from lab.live.faults import FAULTS, JOBS, LiveFault
from lab.live.markers import read_markers
from unhang.errors import UsageError
from unhang.kinds import KINDS

ALL = sorted(FAULTS.values(), key=lambda fault: fault.name)


@pytest.mark.parametrize("fault", ALL, ids=lambda f: f.name)
def test_every_fault_can_get_stuck(fault: LiveFault) -> None:
    """Each role that survives has a marked line, and a problem has a line to show."""
    markers = read_markers(fault.path)
    standing = {marker.who for marker in markers}
    assert standing & {"all", "victims"}
    gone = fault.ending in ("killed", "stopped")
    blamed = fault.expected[0].culprits(fault.ranks, fault.odd)
    assert standing & {"all", "culprits"} or gone or not blamed
    assert any(marker.site for marker in markers) == (fault.name != "healthy")


@pytest.mark.parametrize("fault", ALL, ids=lambda f: f.name)
def test_every_fault_runs_as_it_is(fault: LiveFault) -> None:
    """Defaults are within the limits that the table itself sets, and codes exist."""
    request = checked_request(fault)
    assert request.ranks == fault.ranks <= MAX_RANKS
    assert request.odd == fault.odd
    assert {code for expected in fault.expected for code in expected.codes} <= KINDS.keys()


def test_every_script_is_used() -> None:
    """No job lies around that nobody can run, except what they share."""
    assert {f.script for f in ALL} == {p.name for p in JOBS.glob("*.py")} - {"common.py"}


def test_scripts_know_nothing_of_their_watcher() -> None:
    """A job is what a user would have written: it imports nothing of ours but its own neighbour."""
    for path in JOBS.glob("*.py"):
        modules = {
            alias.name for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import) for alias in node.names
        }  # fmt: skip
        assert not any(name.startswith("unhang") for name in modules)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("never-joined", {"ranks": 1}),
        ("never-joined", {"ranks": 9}),
        ("never-joined", {"odd": 4}),
        ("never-joined", {"odd": -1}),
        ("never-joined", {"timeout_s": 0.0}),
        ("crossed-order", {"ranks": 6}),
        ("wrapped-buffer", {"odd": 1}),
    ],
)
def test_what_cannot_be_run_is_refused(name: str, options: dict[str, float]) -> None:
    """One sentence and a hint, before any process is started."""
    with pytest.raises(UsageError) as caught:
        checked_request(FAULTS[name], **options)  # type: ignore[arg-type]  # one table of options
    assert caught.value.hint


def test_fewer_ranks_move_the_odd_one_down() -> None:
    """Without --odd, the last rank takes the fault where the usual one does not exist."""
    assert checked_request(FAULTS["never-joined"], ranks=2).odd == 1
