"""Dumps that are handed over in memory: bytes or decoded, of one rank or of several."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from makedumps import dump, entry

import unhang
from unhang.errors import NoEvidenceError, UsageError

REAL = Path(__file__).parents[2] / "data" / "gloo_2.13"

FORMS: list[Callable[[Any], Any]] = [
    lambda value: value,
    pickle.dumps,
    lambda value: bytearray(pickle.dumps(value)),
    lambda value: json.dumps(value).encode(),
    json.dumps,
]


def waiting(ranks: int = 2) -> tuple[Any, Any]:
    """The dumps of two ranks, of which the second lacks the call in which the first waits."""
    calls = [entry(number) for number in range(3)]
    stuck = entry(3, state="scheduled", retired=False, time_discovered_completed_ns=None)
    return dump([*calls, stuck], ranks=ranks), dump(calls, ranks=ranks)


@pytest.fixture(autouse=True)
def no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is no rank."""
    monkeypatch.delenv("RANK", raising=False)


@pytest.mark.parametrize("form", FORMS)
def test_a_list_is_in_the_order_of_the_ranks(form: Callable[[Any], Any]) -> None:
    """In every form that torch, or a program that passed it on, has them."""
    case = unhang.load([form(value) for value in waiting()])
    assert [item.rank for item in case.dumps] == [0, 1]
    assert unhang.diagnose(case).culprits == (1,)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("key", [int, str])
def test_a_dictionary_names_the_ranks(form: Callable[[Any], Any], key: type) -> None:
    """Also one that was JSON once, whose keys are text."""
    first, second = waiting(ranks=4)
    case = unhang.load({key(3): form(first), key(1): form(second), key(0): None})
    assert sorted(item.rank for item in case.dumps) == [1, 3]


@pytest.mark.parametrize("form", FORMS)
def test_one_rank_alone_says_what_it_waits_in_and_blames_nobody(form: Callable[[Any], Any]) -> None:
    """That no other dump was handed over is no sign of a dead rank."""
    case = unhang.load(form(waiting()[0]))
    report = unhang.diagnose(case)
    assert report.status == "insufficient"
    assert report.culprits == ()
    assert "rank 0 waits" in report.summary
    assert any("nothing shows its rank" in note.text for note in case.notes)


def test_a_lone_dump_is_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it asks torch for its own trace."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert unhang.load(pickle.dumps(waiting()[0])).dumps[0].rank == 1
    dist = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, get_rank=int)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=dist))
    assert unhang.load(pickle.dumps(waiting()[0])).dumps[0].rank == 0


def test_torchs_own_bytes_are_read() -> None:
    """Pickled and JSON, beside paths."""
    pickled = (REAL / "comm_lib_trace_rank_0").read_bytes()
    text = (REAL / "comm_lib_trace_rank_0.json").read_bytes()
    assert len(unhang.load(pickled).calls) == len(unhang.load(text).calls) > 0
    both = unhang.load([REAL / "comm_lib_trace_rank_0", pickled])
    assert {item.rank for item in both.dumps} == {0, 1}


def test_an_old_torchs_list_of_entries_is_one_dump() -> None:
    """Torch 2.2 and older write no more than the entries."""
    entries = waiting()[0]["entries"]
    assert len(unhang.load(entries).calls) == 4


@pytest.mark.parametrize("given", [5, [5], {"a": 1}, {"rank": b""}, {-1: b""}, {0: object()}])
def test_what_is_no_dump_is_refused(given: Any) -> None:  # noqa: ANN401 - anything at all
    """In one sentence, with what to give instead."""
    with pytest.raises(UsageError, match="dump"):
        unhang.load(given)


@pytest.mark.parametrize("given", [b"", b"no dump", [b"x"], {0: b"{}"}, [], [None]])
def test_nothing_to_judge_is_said(given: Any) -> None:  # noqa: ANN401 - anything at all
    """As with files."""
    with pytest.raises(NoEvidenceError):
        unhang.load(given)
