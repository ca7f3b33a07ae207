"""What we say to people is no output of the command."""

from __future__ import annotations

import pytest

from unhang.run.child.speak import say, without_own_words, write_all


def test_output_is_kept_without_our_own_words(capfd: pytest.CaptureFixture[str]) -> None:
    """A verdict that quotes a log is not read as a log again; the command's words stay."""
    say("rank 1 ended with exit code 1: collecting evidence")
    write_all("\nPROBLEM\n  why  OSError: [Errno 28] No space left on device\n")
    ours = capfd.readouterr().err.encode()
    assert ours
    theirs = b"step 1\nOSError: [Errno 28] No space left on device\n"
    assert without_own_words(theirs[:7] + ours + theirs[7:]) == theirs
