"""Takes one text apart: which of its lines are stacks, which are of NCCL's RAS, which are a log.

Each part keeps its lines where they were, with all others blank, so that a line's number in the
part is its number in the text. It refuses to say what any line means.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from unhang.pasted.unwrapping import unwrapped
from unhang.stacks.formats.gdb import is_broken

LOG, RAS, STACKS, INSPECTOR = "log", "RAS", "stacks", "Inspector"

_FENCE = re.compile(r"^[ \t]*(?:```+|~~~+)[\w.+ -]{0,20}$")
_INLINE = re.compile(r"^`([^`]+)`\s*$")
_TAG = re.compile(
    r"</?(?:details|summary|pre|code|blockquote|p|br|div)(?: [^<>\n]{0,80})?/?>", re.IGNORECASE
)
_QUOTE = re.compile(r"^(?:> ?)+")
_WRAPPED = re.compile(r"^> const&")
"""No quote: the rest of a C++ name that was too long for a line."""
_CELL = re.compile(r"^# MAGIC ?")
"""What Databricks puts in front of the lines of a cell."""

_LABEL = (
    r"(?:\[[\w,.:/= -]{1,60}\](?:<\w+>)?:? ?|\|\| ?|\(\w[\w:.= \[\]]{0,40}=[^()]{1,80}\) ?"
    r"|[A-Za-z][\w.-]{0,60}: |\d{1,6}: |[\w.-]{1,60} *\| ?|[0-9a-f]{8} (?=\[rank=)"
    r"|\[?\d{4}-\d\d-\d\d[T ][\d:.,]+Z?\]? ){0,4}"
)
"""What launchers, Ray, kubectl and clusters put in front of a line."""
_PLACE = r"\((?:[^()\s]+\.(?:py|pyx|pxi|pyc|c|cc|cpp|cu|cuh|h|hpp|rs|S)|<[\w ]+>)(?::\d+)?\)"
_HEADS = r"""(?x:
    Process\ \d+:(?:\ |$) | Parent\ Process\ \d+ | Python\ v\d\.\d+
  | \ {0,3}Thread\ (?:(?:\d+|0x[0-9A-Fa-f]+|<[\w\ -]{1,20}>|[X.]{1,12})\ )?\([a-z+,\ ]+\)
    :?(?:\ "|:?\s*$)
  | (?:Current\ thread|Thread|Stack)\b.{0,80}\(most\ recent\ call\ first\):
  | Timeout\ \(\d+:\d\d:\d\d
  | Thread\ \d+\ (?:\((?:Thread\ 0x|LWP|process|\(LWP)|"[^"]*"\ received\ signal)
  | \[(?:Current\ thread\ is|Switching\ to\ thread|New\ LWP)\b
  | Attaching\ to\ (?:program:|process\ \d) | \((?:cuda-|roc)?gdb\)
  | Traceback\ for\ thread\ \d+ | [\s*]*thread\ \#\d+[,:]
  | \S{0,20}~{5,}\ Stack\ of\ | \#\ ?Thread(?:ID)?:\ .
  | .{0,80}\bpid[ =:]+\d+,?\ \(\w+,?\ [a-z+]+\):?\s*$
)"""
_FRAMES = rf"""(?x:
    \#\d+\ +(?:0x[0-9a-f]+\ in\ )?\S.*(?:\(|$)
  | [\s*]*frame\ \#\d+:\ 0x[0-9a-f]+\ \S+`
  | \s*File\ "[^"]+",\ line\ (?:\d+|\?\?\?)\ in\ \S
  | \ {{4}}\((?:Python|C)\)\ File\ "
  | \s*(?:at\ )?<?[\w.$:~]+>?(?:\.<locals>[\w.<>]*)?\ *{_PLACE}\s*(?:\#.*|(?:<-|\u2190).*)?$
  | \s*(?:rank|worker|gpu|DP|TP|EP|PP)s?[\ _\#]?[\d,\ -]+:\ +[\w.<>]+\ *{_PLACE}
  | \ {{4}}0x[0-9a-f]+\ \(\S+\)\s*$
  | \ {{4}}[\w:~<>,&*\ ]+\ \([\w.+-]+\.so[\d.]*\)\s*(?:(?:<-|\u2190).*)?$
)"""
_HEAD = re.compile(_LABEL + _HEADS)
_FRAME = re.compile(_LABEL + _FRAMES)
_LABELS = re.compile(_LABEL)
_ABOVE = re.compile(
    r"(?:rank|node|worker|process|host|pid|stack|trace|thread|\b\d+ in\b)", re.IGNORECASE
)
"""Words of a heading that a person wrote above a stack."""
_LOGGED = re.compile(
    r"\b(?:INFO|WARN(?:ING)?|ERROR|DEBUG|CRITICAL|FATAL)\b|\b[IWEF]\d{3,4} |\d\d:\d\d:\d\d"
)
_LONGEST_ABOVE = 80
_RAS_HEAD = re.compile(
    r"^NCCL version .* compiled with CUDA|^\s*\{?\s*\"nccl_version\"|^Job summary$"
)
_RAS_SIGNS = ("Job summary", '"communicators"', "Communicators...")


class TextPart(NamedTuple):
    """The lines of one kind.

    Attributes:
        kind: LOG, RAS, STACKS, or INSPECTOR of a whole file.
        text: As many lines as the whole; those of other parts are empty.
        spans: First and last line of each run that is not all empty, from 1.
    """

    kind: str
    text: str
    spans: tuple[tuple[int, int], ...]


def cleaned(text: str) -> str:
    """A text without what a page, a mail or a notebook has put around its lines."""
    text = text.replace("\r\n", "\n").replace("\xa0", " ").replace("\u200b", "")
    if re.search(r"&(?:lt|gt|amp|quot|#39);", text):
        text = html.unescape(text)
    return "\n".join(unwrapped([_bare(line) for line in text.split("\n")]))


def _bare(line: str) -> str:
    line = _CELL.sub("", line if _WRAPPED.match(line) else _QUOTE.sub("", line))
    if _FENCE.match(line):
        return ""
    line = _INLINE.sub(r"\1", line)
    return _TAG.sub("", line) if "<" in line else line


def parts_of(text: str) -> list[TextPart]:
    """The parts of a cleaned text, those with lines: log, stacks, RAS."""
    lines = text.split("\n")
    kinds = _kinds(lines)
    return [part for kind in (LOG, STACKS, RAS) if (part := _part(kind, lines, kinds)).spans]


def _part(kind: str, lines: Sequence[str], kinds: Sequence[str]) -> TextPart:
    chosen = [line if each == kind else "" for line, each in zip(lines, kinds, strict=True)]
    return TextPart(kind, "\n".join(chosen), tuple(_spans(kind, lines, kinds)))


def _spans(kind: str, lines: Sequence[str], kinds: Sequence[str]) -> Iterator[tuple[int, int]]:
    """First and last lines of each run of one kind; empty lines do not end one."""
    filled = [place for place, line in enumerate(lines) if line.strip()]
    for each, run in groupby(filled, key=lambda place: kinds[place]):
        places = list(run)
        if each == kind:
            yield places[0] + 1, places[-1] + 1


def _kinds(lines: Sequence[str]) -> list[str]:
    kinds = [LOG] * len(lines)
    _mark_ras(lines, kinds)
    inside = False
    for place, line in enumerate(lines):
        if kinds[place] == RAS:
            inside = False
        elif _HEAD.match(line) or _FRAME.match(line):
            kinds[place], inside = STACKS, True
            _take_above(lines, kinds, place)
        elif inside and (_is_indented(line) or is_broken(lines[place - 1])):
            kinds[place] = STACKS
        elif line.strip():
            inside = False
    return kinds


def _is_indented(line: str) -> bool:
    """Whether a line, behind what a launcher put there, is the inside of something above."""
    label = _LABELS.match(line)
    return line[label.end() if label else 0 :][:1] in (" ", "\t")


def _take_above(lines: Sequence[str], kinds: list[str], place: int) -> None:
    """Give a stack the short lines right above it that tell whose it is."""
    for above in range(place - 1, max(place - 6, -1), -1):
        line = lines[above]
        if kinds[above] != LOG or len(line) > _LONGEST_ABOVE or _LOGGED.search(line):
            return
        if _ABOVE.search(line):
            kinds[above] = STACKS
        elif line.strip():
            return


def _mark_ras(lines: Sequence[str], kinds: list[str]) -> None:
    """What RAS printed goes to the next stack, line of a log or end."""
    if not any(sign in line for line in lines for sign in _RAS_SIGNS):
        return
    inside = False
    for place, line in enumerate(lines):
        if _RAS_HEAD.match(line):
            inside = True
            if place and lines[place - 1].strip() == "{":
                kinds[place - 1] = RAS
        elif inside and (_HEAD.match(line) or _LOGGED.search(line)):
            inside = False
        if inside:
            kinds[place] = RAS
