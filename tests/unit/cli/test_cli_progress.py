from __future__ import annotations

import io

from unhang.cli.shared.reading_progress import DELAY_S, reading_progress


class Terminal(io.StringIO):
    """A stream that says that somebody looks at it."""

    def isatty(self) -> bool:
        """Yes."""
        return True


def test_pipes_get_no_progress() -> None:
    """Nobody looks, nothing is drawn, and readers are told so."""
    stream = io.StringIO()
    with reading_progress(stream) as show:
        assert show is None
    assert stream.getvalue() == ""


def test_short_reads_show_nothing_long_ones_a_bar() -> None:
    """The bar appears after a moment, by the clock that is given."""
    now = [0.0]
    stream = Terminal()
    with reading_progress(stream, lambda: now[0]) as show:
        assert show is not None
        show(1, 9)
        assert stream.getvalue() == ""
        now[0] = DELAY_S
        show(2, 9)
    assert "reading" in stream.getvalue()
