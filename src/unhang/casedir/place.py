"""Where the evidence of a report lies, as words of a command line that would read it again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Place:
    """Where evidence lies; empty where it is unknown or secret.

    Attributes:
        case: Paths of dumps or of a case, with the options that help to read them.
        stacks: Where saved stacks lie, or "".
        logs: Where logs lie.
        command: The job's own command, where `unhang run` has just seen it: one that stands in a
            case from elsewhere is nothing to run.
        folder: The directory that it is, or "".
    """

    case: tuple[str, ...] = ()
    stacks: str = ""
    logs: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    folder: str = ""


def place_in(folder: Path, options: Sequence[str] = ()) -> Place:
    """What lies in a case, or in a directory of dumps."""
    stacks, logs = folder / "stacks", folder / "logs"
    return Place(
        case=(str(folder), *options),
        stacks=str(stacks) if stacks.is_dir() else "",
        logs=(str(logs),) if logs.is_dir() else (),
        folder=str(folder) if folder.is_dir() else "",
    )
