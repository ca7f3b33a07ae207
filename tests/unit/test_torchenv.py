"""Which names of a setting a torch is left with: none that it calls deprecated of our doing."""

from __future__ import annotations

import pytest

from unhang.torchenv import OLDER_NAMES, SETTINGS, can_go, settle, warned_of

BOTH = {name: each.newer for each in SETTINGS for name in each[:2]}
OURS = {OLDER_NAMES: ",".join(each.older for each in SETTINGS)}
READ_TWICE = {"TRACE_BUFFER_SIZE", "DEBUG_INFO_TEMP_FILE", "TRACE_CPP_STACK"}
HOOKS_TOO = READ_TWICE | {"DUMP_ON_TIMEOUT", "WAIT_TIMEOUT_DUMP_MILSEC"}


@pytest.mark.parametrize(
    ("version", "taken"),
    [
        ("2.15.0+cu132", HOOKS_TOO),
        ("2.14.1", READ_TWICE),
        ("2.13.0+cpu", READ_TWICE),
        ("2.9.1+cpu", set()),
        ("unknown", set()),
    ],
)
def test_older_names_are_taken_back_where_the_newer_ones_do(version: str, taken: set[str]) -> None:
    """2.13 reads the newer names of three settings, 2.15 those of all five."""
    environ = {**BOTH, **OURS}
    settle(environ, version)
    assert BOTH.keys() - environ.keys() == {f"TORCH_NCCL_{name}" for name in taken}


def test_what_the_user_has_set_stays() -> None:
    """Under its older name, and where the two names say different things."""
    size, path = SETTINGS[0], SETTINGS[1]
    environ = {**BOTH, OLDER_NAMES: path.older, path.older: "/mine"}
    settle(environ, "2.15.0")
    assert environ[size.older] == size.newer
    assert environ[path.older] == "/mine"


def test_ranks_may_have_an_older_torch_than_their_launcher() -> None:
    """What the launcher took back is there again."""
    environ = {**BOTH, **OURS}
    settle(environ, "2.15.0")
    settle(environ, "2.9.1")
    assert environ == {**BOTH, **OURS}


def test_outside_of_a_run_nothing_changes() -> None:
    """There, all variables are the user's own."""
    environ = dict(BOTH)
    settle(environ, "2.15.0")
    settle(environ, "2.2.0")
    assert environ == BOTH


def test_what_torch_complains_of_is_told_by_version() -> None:
    """For `doctor env`."""
    name = "TORCH_NCCL_TRACE_BUFFER_SIZE"
    assert warned_of({name: "2000", "NCCL_DEBUG": "INFO"}, "2.15.0") == {
        name: "TORCH_FR_BUFFER_SIZE"
    }
    assert warned_of({name: "2000"}, "2.9.1") == {}
    assert set(can_go("2.13.0")) < set(can_go("2.15.0"))
