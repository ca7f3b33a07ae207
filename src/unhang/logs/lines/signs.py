"""Is this text the log of a job at all, and does the job go on? Told by its shape, not by rules.

Nothing may be called healthy that could not have shown a failure; and an error after which the job
counted further steps did not end it. It refuses to take one number for progress.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

WINDOW = 1 << 18
"""Bytes of a block in which a shape is looked for."""
ENOUGH = 3
"""Different steps that must follow before a job is said to go on."""

_STEP = re.compile(rb"(?i)\b(?:iter(?:ation)?|step|epoch|batch)s?[ \]:=#(\[]{1,12}(\d{1,12})\b")
_SHAPE = re.compile(
    rb"""(?mix)
    ^\[?(?:rank|default)\ ?\d+\]?:                        # a launcher's prefix
    | NCCL\ (?:INFO|WARN|version)
    | ^\[?[IWEF]\d{3,4}\ \d\d:\d\d:\d\d                   # glog
    | \d{4}-\d\d-\d\d[ T_]\d\d:\d\d:\d\d
    | (?-i:\b(?:INFO|WARNING|DEBUG)\b)\ *[]:|>-]
    | (?-i:\b(?:INFO|WARNING|DEBUG|ERROR)\b)\ \d\d-\d\d\ \d\d:\d\d:\d\d  # vLLM
    | (?:it/s|s/it)\b
    | :\ *\d[\d.,]*\ ?(?:sec|ms|[GMT]?bps)\b
    | \b(?:iter(?:ation)?|step|epoch)s?[ \]:=#(\[]{1,12}\d+
        (?:\ */\ *\d+|[^\n\d]{0,80}\b(?:loss|lr|time|sec|ms|acc)\b|\W*$)
    """
)


def looks_like_a_job(block: bytes) -> bool:
    """Whether a block holds lines in the shape of a job's log: stamps, ranks, levels, steps."""
    return any(_SHAPE.search(part) for part in (block[:WINDOW], block[-WINDOW:]))


_STANDS = re.compile(
    r"(?i)\b(?:hangs?|hanging|hung|stuck|deadlock(?:s|ed)?|fr[eo]ezes?|frozen|freezing|stalls?)\b"
    "|卡住|卡死|挂住|挂起|挂死".encode()
)
_AROUND = 2_048
"""Bytes at both ends of a text in which a person writes about the log between them."""


def told_to_stand(data: bytes) -> bool:
    """Whether a person wrote above or below a log, in English or Chinese, that its job stands."""
    for part in (data[:_AROUND], data[-_AROUND:]):
        lines = (line for line in part.splitlines() if _STANDS.search(line))
        if any(not _SHAPE.search(line) for line in lines):
            return True
    return False


_ROW = re.compile(
    rb"(?m)^[^\w\n]{0,80}(?:\S{1,200}>:)?[ ]{0,40}"
    rb"\d+ +\d+ +(?:u?int\d+|float|half|double|bfloat16) +\w+ +-?\d+"
    rb"(?: +[\d.]+){3} +(?P<wrong>\S+)"
)
_NUMBERS = re.compile(rb"\d+")
_ALIKE = 80
"""Bytes before the number of a step that tell lines apart."""
_SOME = rb"(?<![\d.,])(?!0+(?:\.0*)?(?:e[+-]?\d+)?[.,]*(?:[^\d.,]|$))\d[\d.,]*"
"""A number that is not zero: a rate of zero tells of no work."""
_END = re.compile(
    rb"""(?mix)
    \btrain(?:ing|er)?\b.{0,20}\b(?:complete[d]?|finished|done)\b
    | \bmax_(?:epochs|steps)=\d+`?\ reached | \bfinished\ training\b
    | \bjob\b.{0,40}\bsucceeded\b | \bexit(?:ed)?\ (?:with\ )?(?:code|status)\ 0\b
    | ^\#\ Avg\ bus\ bandwidth
    """
)
_WORK = re.compile(
    rb"""(?mix)
    SOME\ ?(?:it|iters?|steps?|samples?|tokens?|tok|imgs?|images?|sequences?|examples?|words?)
        \ ?/\ ?s(?:ec(?:ond)?)?\b
    | \b(?:samples|tokens|steps|images|examples)\ per\ second\b[^\d\n]{0,9}SOME
    | SOME\ ?s(?:ec)?/(?:it|iter|step|batch)\b
    | loss\b['"]?\ ?[=:(]{0,2}\ {0,6}-?\d
    | (?:throughput|bus\ ?bandwidth|algbw|busbw)\b[^\d\n]{0,40}SOME
    | tok(?:ens)?/s\b[^\d\n,;|]{0,40}SOME
    | \bsaved\ (?:the\ )?(?:model|checkpoint|state)
    | "(?!(?:GET|HEAD|OPTIONS)\ /(?:v1/models|metrics|ping|\w*(?:health|live|ready)\w*)\b)
        (?!POST\ /(?:(?:update|init|reset|flush|close)_\w+|sleep|wake_up|pause|resume)\b)
        [A-Z]+\ /[^"\n]{0,400}"\ (?:200|204)\b
    """.replace(b"SOME", _SOME)
)
"""Rates, losses, results, an answer: what no program prints that has just begun.

A server whose engine is dead goes on to answer whether it is healthy, and which models it has; what
a trainer gives it (weights, a group) serves no request, and may be the last that it ever did.
"""

_PREPARES = re.compile(
    rb"\b(?:Load|Download|Fetch|Captur|Tokeniz|Convert)ing\b[^|\n]{0,80}?: *\d{1,3}%"
    rb"|\b(?:Map|Filter)(?: \([^)\n]{1,40}\))?: *\d{1,3}%"
)
"""Bars of a start: weights, data sets, graphs. Their rates are none of steps."""


def gets_on(block: bytes) -> bool:
    """Whether a block tells that work was done: a start alone may be the start of a hang."""
    return _works(block) or _counts(block) or ended_well(block)


def _works(block: bytes) -> bool:
    """Whether it tells of work by a line that is no bar of what is done before the first step."""
    for match in _WORK.finditer(block):
        start = block.rfind(b"\n", 0, match.start()) + 1
        if not _PREPARES.search(block, start, match.end()):
            return True
    return False


def ended_well(block: bytes) -> bool:
    """Whether a block tells of a good end or of a result: a job that stands writes neither."""
    return bool(_END.search(block)) or _measured(block)


def _measured(data: bytes) -> bool:
    """Whether it holds rows of nccl-tests, and no wrong result in any."""
    wrong = {row["wrong"] for row in _ROW.finditer(data)}
    return bool(wrong) and wrong <= {b"0", b"0e+00", b"N/A"}


def _counts(data: bytes) -> bool:
    """Whether lines that differ in their numbers alone count steps, as no settings do."""
    seen: dict[bytes, set[bytes]] = {}
    for match in _STEP.finditer(data):
        line = data[data.rfind(b"\n", 0, match.start()) + 1 : match.start()]
        steps = seen.setdefault(_NUMBERS.sub(b"#", line[-_ALIKE:]), set())
        steps.add(match[1])
        if len(steps) >= ENOUGH:
            return True
    return False


def goes_on(data: bytes, start: int) -> bool:
    """Whether lines from `start` on count different steps: the job did not end before them.

    Every rank prints the same step, so steps count once, from any rank.
    """
    seen: set[bytes] = set()
    found = _STEP.search(data, start)
    while found and len(seen) < ENOUGH:
        end = data.find(b"\n", found.end()) + 1 or len(data)
        seen.add(b" ".join(match[1] for match in _STEP.finditer(data, found.start(), end)))
        found = _STEP.search(data, end)
    return len(seen) >= ENOUGH


StepLine: TypeAlias = tuple[int, int, bytes]
"""A line that counts steps: where it begins and ends, and which steps it counts."""


def step_lines(data: bytes, start: int = 0) -> Iterator[StepLine]:
    """The lines from `start` on that count steps."""
    found = _STEP.search(data, start)
    while found:
        start = data.rfind(b"\n", 0, found.start()) + 1
        end = data.find(b"\n", found.end()) + 1 or len(data)
        yield start, end, b" ".join(match[1] for match in _STEP.finditer(data, start, end))
        found = _STEP.search(data, end)
