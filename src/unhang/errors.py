"""The exception tree. Each error says what is wrong in one sentence and, as a hint, what to do.

UnhangError
├── UsageError            the command line or the arguments are wrong            exit code 2
├── InputError            the input cannot be read at all                        exit code 3
│   └── NoEvidenceError   the input was read but holds nothing to judge          exit code 3
├── MissingExtraError     an optional dependency is not installed                exit code 2
├── ToolError             a program that we start failed or is absent            exit code 3
└── OutputError           the result cannot be written                           exit code 2

One unreadable file among many is no error: it becomes a note (see `unhang.model.Note`).
"""

from __future__ import annotations

from typing import ClassVar


class UnhangError(Exception):
    """Base of all errors that a user may see.

    Attributes:
        message: One sentence without a final full stop being required.
        hint: What to do next, or an empty string.
        exit_code: What a command line program returns for it.
    """

    exit_code: ClassVar[int] = 3

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(UnhangError):
    """The command line or an argument is wrong."""

    exit_code: ClassVar[int] = 2


class InputError(UnhangError):
    """The input cannot be read at all."""


class NoEvidenceError(InputError):
    """The input was read, but nothing in it can be judged."""


class MissingExtraError(UnhangError):
    """An optional dependency is needed and not installed."""

    exit_code: ClassVar[int] = 2

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs an optional dependency that is not installed.",
            f"Install it with: pip install 'unhang[{extra}]'",
        )
        self.extra = extra


class ToolError(UnhangError):
    """A program that unhang starts failed, or is not there."""


class OutputError(UnhangError):
    """The result cannot be written where it was asked for."""

    exit_code: ClassVar[int] = 2
