"""What a page may use: width, colour, characters. It is handed in, never found out here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """How to draw.

    Attributes:
        width: Columns of the page.
        color: Whether ANSI colours may be used.
        unicode: Whether characters beyond ASCII can be shown; without it they are escaped.
        full: Everything; else what matters in about a dozen lines.
    """

    width: int = 80
    color: bool = False
    unicode: bool = True
    full: bool = True
