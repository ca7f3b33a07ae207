"""Processes that will be ranks: found below what started their peers, or below a peer."""

from __future__ import annotations

import pytest

from unhang.collect.processes import Process, ProcessTable
from unhang.record.contact.marks import Mark
from unhang.run.watching import newborn
from unhang.run.watching.newborn import Newborns

LAUNCHER, FIRST = 10, 11


def process(pid: int, parent: int, **environ: str) -> Process:
    """A Python process whose environment names no rank."""
    command = "python train.py"
    return Process(pid, parent, start_ticks=pid, python=True, command=command, environ=environ)


def found(
    monkeypatch: pytest.MonkeyPatch, parent: int, *marks: Mark, numbered: bool = True
) -> list[tuple[int, int, str]]:
    """Pid, rank and phase of those found, where rank 0 of 3 waits and the others are children."""
    monkeypatch.setattr(newborn, "alive", lambda _: True)
    monkeypatch.setattr("unhang.collect.ranks.alive", lambda _: True)
    come = Mark(FIRST, FIRST, phase="initialising", env_rank=0, told_size=3)
    others = [
        process(pid, parent, **({"LOCAL_RANK": rank} if numbered else {}))
        for pid, rank in ((12, "1"), (13, "2"))
    ]
    below = ProcessTable.of([process(LAUNCHER, 1), process(FIRST, LAUNCHER), *others])
    newborns = Newborns("job", "run", LAUNCHER)
    each = newborns._among(below, [come, *marks], [come], 3)
    return [(one.mark.pid, one.rank, one.mark.phase) for one in each]


@pytest.mark.parametrize("parent", [LAUNCHER, FIRST], ids=["a launcher", "rank 0"])
def test_children_of_a_launcher_or_of_a_peer_are_the_missing_ones(
    monkeypatch: pytest.MonkeyPatch, parent: int
) -> None:
    """Lightning's first rank starts the others itself, and tells them their number on the node."""
    assert found(monkeypatch, parent) == [(12, 1, "starting"), (13, 2, "starting")]


def test_helpers_of_a_peer_are_no_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a rank starts may be its loader or compiler; a launcher's children are counted."""
    assert found(monkeypatch, FIRST, numbered=False) == []
    assert len(found(monkeypatch, LAUNCHER, numbered=False)) == 2


def test_those_that_have_imported_torch_are_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spawned process is told its rank by an argument: its own mark names none."""
    helper = Mark(12, 12, phase="imported", role="helper")
    assert found(monkeypatch, LAUNCHER, helper) == [(12, 1, "imported"), (13, 2, "starting")]


def test_a_process_that_is_a_rank_already_is_no_newborn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then too few are left to be the missing ones, and nobody is guessed."""
    other = Mark(12, 12, phase="ready", role="rank", rank=0)
    assert found(monkeypatch, LAUNCHER, other) == []
