"""Small words that every room needs: rank sets as people write them, text that is safe to print.

One place, so that "0-6,8" looks the same in a sentence, a table and a tree, and so that nothing
from a dump, a log or a process name can send escape sequences to somebody's terminal. It refuses to
know about colours, widths or any output format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = ["fold_ranks", "intervals", "printable"]


def intervals(ranks: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield (first, last) of each run of consecutive ranks, ascending; both ends belong to it."""
    first = last = None
    for rank in sorted(set(ranks)):
        if last is not None and rank == last + 1:
            last = rank
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = rank
    if first is not None and last is not None:
        yield first, last


def fold_ranks(ranks: Iterable[int], limit: int = 12) -> str:
    """Write a set of ranks as ranges: "0-6,8".

    With more than `limit` ranges the rest is counted: "0,2,4,… (64 ranks)".
    """
    members = set(ranks)
    runs = list(intervals(members))
    words = [str(a) if a == b else f"{a}-{b}" for a, b in runs[:limit]]
    if len(runs) > limit:
        words.append(f"… ({len(members)} ranks)")
    return ",".join(words)


def printable(text: str, limit: int = 0) -> str:
    r"""Make text from outside safe for a terminal: an escape character becomes "\x1b" and so on.

    Args:
        text: Anything; new lines and tabs are escaped too, since they break tables and sentences.
        limit: Longest result in characters, ending in "…" where it was cut; 0 for no limit.
    """
    if not text.isprintable():
        text = "".join(c if c.isprintable() else _escaped(c) for c in text)
    if limit and len(text) > limit:
        return text[: max(limit - 1, 0)] + "…"
    return text


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
