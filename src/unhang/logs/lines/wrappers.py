"""What a message wraps: the error that a watchdog, C++ or a JSON record passes on in its own words.

The wrapped text is given to the rules like a line of its own. It refuses to guess: a text without
one of these marks wraps nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LAST_ERROR = "Last error:"
"""NCCL's own words stand behind it, mostly in the next line."""

_MARKS = (
    "terminated with exception: ",
    "async exception: ",
    "what():",
    LAST_ERROR,
    "NCCL error in: ",
    '"message": "',
    '"py_callstack": "',
    "log entry (may be unrelated) '",
    "Cuda failure ",
)
WRAPPER_ANCHORS = _MARKS
_MOST = 6
_MARK = re.compile("|".join(re.escape(mark) for mark in _MARKS))
_JSON_BREAK = re.compile(r'\\n|"[,}]')
_CUDA = re.compile(r"(?:\d{1,6} )?'(?P<what>[^']{3,80})'")
# A failure of CUDA that NCCL meets says what it is; these can be anything of NCCL's own doing.
_VAGUE = (
    *(
        "driver shutting down",
        "initialization error",
        "invalid argument",
        "invalid resource handle",
    ),
    *("out of memory", "peer access", "peer mapping", "system not yet", "unrecognized error code"),
)
_EXCEPTION = re.compile(r"(?<![\w.])(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)\b")


def wrapped_in(text: str) -> Iterator[str]:
    """The texts that a line passes on, outermost first; none where it wraps nothing."""
    for mark in list(_MARK.finditer(text))[:_MOST]:
        inner = text[mark.end() :].strip()
        if mark[0].startswith('"'):
            yield from _of_record(inner)
        elif mark[0].startswith("Cuda"):
            yield from _of_cuda(inner)
        elif inner:
            yield inner


def _of_record(text: str) -> Iterator[str]:
    """The exceptions in a JSON string whose line ends are written out."""
    parts = (part.strip() for part in _JSON_BREAK.split(text[:4_000]))
    yield from [part for part in parts if _EXCEPTION.match(part)][-_MOST:]


def _of_cuda(text: str) -> Iterator[str]:
    """NCCL's words for an error of CUDA, in those of CUDA itself."""
    told = _CUDA.match(text)
    if told and not told["what"].startswith(_VAGUE):
        yield f"CUDA error: {told['what']}"
