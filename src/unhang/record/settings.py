"""What the environment says to the recorder: every UNHANG_ variable is read here and nowhere else.

Nonsense in a variable never stops a job: the default is taken and the problem is reported.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

DEFAULT_BUFFER_SIZE: Final = 2000
MAX_BUFFER_SIZE: Final = 1_000_000
FULL_MODES: Final = ("auto", "always", "never")


@dataclass(frozen=True, slots=True, repr=False)
class Settings:
    """The recorder's settings; docs/recorder.md has the table.

    Attributes:
        buffer_size: Entries that the ring of our own recorder keeps.
        stacks: Whether our own entries carry the Python stack of the call.
        full: "auto", "always" or "never": which backends get the full recorder.
        compiled: Whether calls from known places may be noted by compiled code.
        keep: Incidents kept per process.
        signal: Number of the signal that triggers a dump, or 0.
        directory: Where incident directories are made, or "" for ./unhang-cases.
        replica: Replica of a fault-tolerant job, or "".
        problems: What was wrong in the environment.
    """

    buffer_size: int = DEFAULT_BUFFER_SIZE
    stacks: bool = True
    full: str = "auto"
    compiled: bool = True
    keep: int = 16
    signal: int = 0
    directory: str = ""
    replica: str = ""
    problems: tuple[str, ...] = ()


def read_settings(env: Mapping[str, str] | None = None) -> Settings:
    """Read the settings from `env` (the process's environment by default)."""
    env = os.environ if env is None else env
    problems: list[str] = []
    return Settings(
        buffer_size=_number(
            env, "UNHANG_BUFFER_SIZE", DEFAULT_BUFFER_SIZE, MAX_BUFFER_SIZE, problems
        ),
        stacks=env.get("UNHANG_STACKS", "1") != "0",
        full=_choice(env, "UNHANG_FULL", FULL_MODES, problems),
        compiled=env.get("UNHANG_COMPILED", "1") != "0",
        keep=_number(env, "UNHANG_KEEP", 16, 10_000, problems),
        signal=_signal(env, problems),
        directory=env.get("UNHANG_DIR", ""),
        replica=env.get("UNHANG_REPLICA", ""),
        problems=tuple(problems),
    )


def _number(env: Mapping[str, str], name: str, default: int, most: int, problems: list[str]) -> int:
    text = env.get(name, "")
    if not text:
        return default
    if text.isascii() and text.isdigit() and 1 <= int(text) <= most:
        return int(text)
    problems.append(f"{name}={text[:40]!r} is not a number from 1 to {most}: taken as {default}")
    return default


def _choice(
    env: Mapping[str, str], name: str, choices: tuple[str, ...], problems: list[str]
) -> str:
    text = env.get(name, choices[0])
    if text in choices:
        return text
    problems.append(f"{name}={text[:40]!r} is none of {', '.join(choices)}")
    return choices[0]


def _signal(env: Mapping[str, str], problems: list[str]) -> int:
    text = env.get("UNHANG_SIGNAL", "")
    if not text:
        return 0
    try:
        return int(signal.Signals[text if text.startswith("SIG") else f"SIG{text}"])
    except KeyError:
        problems.append(f"UNHANG_SIGNAL={text[:40]!r} is no signal: none is used")
        return 0
