"""The environment: nonsense is reported, never obeyed and never fatal."""

from __future__ import annotations

import signal

import pytest

from unhang.record.settings import Settings, read_settings


def test_nothing_set_means_the_defaults() -> None:
    """Whole-object equality."""
    assert read_settings({}) == Settings()


def test_everything_set() -> None:
    """Each variable has its effect."""
    env = {
        "UNHANG_BUFFER_SIZE": "50", "UNHANG_STACKS": "0", "UNHANG_FULL": "never",
        "UNHANG_COMPILED": "0", "UNHANG_KEEP": "3", "UNHANG_SIGNAL": "USR2", "UNHANG_DIR": "/cases",
        "UNHANG_REPLICA": "2",
    }  # fmt: skip
    assert read_settings(env) == Settings(
        buffer_size=50, stacks=False, full="never", compiled=False, keep=3,
        signal=int(signal.SIGUSR2), directory="/cases", replica="2",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("UNHANG_BUFFER_SIZE", "0"),
        ("UNHANG_BUFFER_SIZE", "99999999999999"),
        ("UNHANG_BUFFER_SIZE", "²"),
        ("UNHANG_KEEP", "-1"),
        ("UNHANG_FULL", "perhaps"),
        ("UNHANG_SIGNAL", "SIGNOTHING"),
    ],
)
def test_nonsense_takes_the_default_and_is_said(name: str, value: str) -> None:
    """One problem, naming the variable."""
    settings = read_settings({name: value})
    assert len(settings.problems) == 1
    assert name in settings.problems[0]
    assert settings == Settings(problems=settings.problems)
