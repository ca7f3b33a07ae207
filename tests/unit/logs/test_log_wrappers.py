"""What a line passes on in its own words, and what only looks as if it did."""

from __future__ import annotations

import pytest

from unhang.logs.lines.wrappers import wrapped_in


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("watchdog thread terminated with exception: CUDA error: x", ["CUDA error: x"]),
        ("raised the following async exception: NCCL error: x", ["NCCL error: x"]),
        ("  what():  std::bad_alloc", ["std::bad_alloc"]),
        ("Last error: Failed to CUDA calloc", ["Failed to CUDA calloc"]),
        ("Last error:", []),
        (
            "NCCL error in: ProcessGroupNCCL.cpp:1, unhandled cuda error",
            ["ProcessGroupNCCL.cpp:1, unhandled cuda error"],
        ),
        ('{"message": {"message": "KeyError: 3", "extraInfo": {}}}', ["KeyError: 3"]),
        (r'{"py_callstack": "Traceback\nValueError: x\n"}', ["ValueError: x"]),
        (
            "log entry (may be unrelated) 'Cuda failure 2 'out of memory''.",
            ["Cuda failure 2 'out of memory''."],
        ),
        ("NCCL WARN Cuda failure 719 'unspecified launch failure'",
         ["CUDA error: unspecified launch failure"]),
        ("NCCL WARN Cuda failure 'initialization error'", []),
        ("NCCL WARN Cuda failure 'driver shutting down'", []),
        ("NCCL WARN Cuda failure counted", []),
        ("the thread terminated normally", []),
    ],
)  # fmt: skip
def test_wrappers(line: str, texts: list[str]) -> None:
    """Every wrapper yields what it wraps; what says nothing of its own yields nothing."""
    assert list(wrapped_in(line)) == texts
