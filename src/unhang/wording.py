"""Small words that every room needs: rank sets as people write them, text that is safe to print.

One place, so that "0-6,8" looks the same in a sentence, a table and a tree, and so that nothing
from a dump, a log or a process name can send escape sequences to a user's terminal. It refuses to
know about colours, widths or any output format.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence

from unhang.errors import UsageError

MAX_RANK = 10_000_000
"""No job has more ranks; a larger number in a rank list is a slip that would fill the memory."""

_SHORTEST_STRIDE = 4
"""Fewer equally spaced ranks are written out: "0,8,16" reads easier than "0-16:8"."""

_ENDINGS = {"1": "st", "2": "nd", "3": "rd"}

_ASCII = bytes(range(128)) + b"?" * 128

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)


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


def fold_ranks(ranks: Iterable[int], limit: int = 12, *, spoken: bool = False) -> str:
    """Write a set of ranks as ranges, in the notation of CPU lists: "0-6,8", "0-56:8".

    The latter is every eighth rank, as tensor and data parallel groups have them. With more than
    `limit` ranges the rest is counted: "0-1,8-9,16-17,… (64 ranks)".

    Args:
        ranks: In any order.
        limit: Most ranges.
        spoken: For sentences: "0-56 (every 8th)", which `parse_ranks` does not read.
    """
    members = sorted(set(ranks))
    words: list[str] = []
    for word in _ranges(members):
        if len(words) == limit:
            words.append(f"… ({len(members)} ranks)")
            break
        words.append(_spoken(word) if spoken else word)
    return ",".join(words)


def _spoken(word: str) -> str:
    """Say a stride: "0-56:8" is "0-56 (every 8th)"."""
    span, _, step = word.partition(":")
    if not step:
        return word
    ending = "th" if step[-2:] in ("11", "12", "13") else _ENDINGS.get(step[-1], "th")
    return f"{span} (every {step}{ending})"


def _ranges(ranks: Sequence[int]) -> Iterator[str]:
    start = 0
    while start < len(ranks):
        step = 1
        stop = _run_end(ranks, start, step)
        if stop == start and start + 1 < len(ranks):
            step = ranks[start + 1] - ranks[start]
            stop = _run_end(ranks, start, step)
            if stop - start + 1 < _SHORTEST_STRIDE:
                stop = start
        yield _range(ranks[start], ranks[stop], step)
        start = stop + 1


def _run_end(ranks: Sequence[int], start: int, step: int) -> int:
    """Index of the last rank of the equally spaced run that begins at `start`."""
    last = start
    while last + 1 < len(ranks) and ranks[last + 1] - ranks[last] == step:
        last += 1
    return last


def _range(first: int, last: int, step: int) -> str:
    if first == last:
        return str(first)
    return f"{first}-{last}" if step == 1 else f"{first}-{last}:{step}"


def parse_ranks(text: str) -> frozenset[int]:
    """Read what `fold_ranks` writes: "0-3,7" or "0-56:8".

    Raises:
        UsageError: If the text is no such list, a range runs backwards or a rank is absurd.
    """
    return frozenset(rank for ranks in ranges_of(text) for rank in ranks)


def ranges_of(text: str) -> tuple[range, ...]:
    """As `parse_ranks`, and however many ranks it names, no more than the text is long."""
    return tuple(_read_range(part.strip()) for part in text.split(","))


def _read_range(part: str) -> range:
    found = _RANGE.fullmatch(part)
    if found:
        first = int(found[1])
        last, step = int(found[2] or first), int(found[3] or 1)
        if first <= last <= MAX_RANK and step:
            return range(first, last + 1, step)
    raise UsageError(
        f"'{printable(part, 40)}' is neither a rank nor a range of ranks",
        "Write ranks like 0-3,7 or 0-56:8 (every eighth).",
    )


def rank_phrase(ranks: Sequence[int], limit: int = 12) -> str:
    """Name ranks in a sentence: "rank 7", "ranks 0-6", or "no rank"."""
    if not ranks:
        return "no rank"
    return f"{'rank' if len(set(ranks)) == 1 else 'ranks'} {fold_ranks(ranks, limit, spoken=True)}"


def count_of(number: int, noun: str, plural: str = "") -> str:
    """Write a count with its noun: "1 rank", "1,024 ranks"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def all_of(number: int, noun: str) -> str:
    """Write all of a kind with the verb: "all 4 members are", "the only member is"."""
    return f"all {number:,} {noun}s are" if number != 1 else f"the only {noun} is"


def all_ranks(number: int) -> str:
    """Begin a sentence about all of them: "All 1,024 ranks", "Both ranks", "The only rank"."""
    few = {1: "The only rank", 2: "Both ranks"}
    return few.get(number, f"All {number:,} ranks")


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


def shell_word(word: str) -> str:
    r"""A word as a shell reads it; what a terminal would obey or hide is written out: $'a\x1b'."""
    if word.isprintable():
        return shlex.quote(word)
    raw = (char if char.isprintable() and char not in "'\\" else _octal(char) for char in word)
    return f"$'{''.join(raw)}'"


def _octal(char: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape"))


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def readable(text: bytes) -> str:
    """A string of a pickle, as long in bytes as it was; C++ writes whatever a path consists of."""
    try:
        return text.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return text.translate(_ASCII).decode("ascii")
