"""How a log ends: words of trouble in its last lines, which no rule and no mark of an error tell.

A log that ends in "timed out" did not end well, whatever wrote it. It refuses to see trouble in
lines that mark themselves as information, or in counts of nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

TAIL = 16_384
"""Bytes at the end of a log in which words of trouble are looked for."""
LAST_LINES = 30
MOST = 5

_WORDS = re.compile(
    rb"(?i)\b(?:failed|failure|timed[ -]?out|time-?out (?:after|while|waiting|expired|reached)"
    rb"|aborted|killed|died|crashed|unhealthy|refused|unreachable|disconnected|panic|hung"
    rb"|stuck|core dumped|unresponsive|not responding|terminated|cancell?ed|preempted|evicted"
    rb"|out of memory|lost connection|connection lost|no such device|unrecoverable|fatal)\b"
    rb'|\bFile "[^"\n]+", line \d+, in '
)
_FINE = re.compile(
    rb"\b(?:INFO|DEBUG|TRACE|NOTICE)\b|^[\[(]?[ID]\d{4} |Warning:|\bWARN(?:ING)?\b"
    rb"|(?i:\b(?:no|0|zero|without|not|never) (?:\w+ )?(?:failed|failures?|timed|died|killed)"
    rb"|(?:failed|failures?|errors?|killed|died|aborted|cancell?ed|preempted)\W{1,3}0\b"
    rb"|terminated (?:normally|successfully)|0 \w+ failed|if [^.]{0,200}\b(?:failed|killed|stuck)"
    rb"|success|retry|retrying|fall(?:ing)? ?back|skipp)"
)


_GRAVE = re.compile(
    rb"(?i)\b(?:died|crashed|(?:was|were|been|got) killed|core dumped|panic|ran out of memory"
    rb"|unexpectedly (?:terminated|exited|closed|died)|(?:terminated|exited) unexpectedly)\b"
)
"""Words that a line means, even where it marks itself as a mere warning."""
_WARNS = re.compile(rb"\bWARN(?:ING)?\b")


def troubled(tail: bytes) -> Iterator[tuple[int, int]]:
    """The last lines of a log that speak of trouble: where each begins and ends.

    Args:
        tail: The end of the log, of whole lines.
    """
    end, found = len(tail), 0
    for _ in range(LAST_LINES):
        if end <= 0 or found >= MOST:
            return
        start = tail.rfind(b"\n", 0, end - 1) + 1
        line = tail[start:end]
        if speaks_of_trouble(line):
            found += 1
            yield start, end
        end = start


def speaks_of_trouble(line: bytes) -> bool:
    """Whether a line has a word of trouble, and nothing that says that it is none."""
    if _GRAVE.search(line):
        line = _WARNS.sub(b"", line)
    return bool(_WORDS.search(line)) and not _FINE.search(line)
