"""Whose line is it, and when was it written: the prefixes that launchers and libraries add.

Knows torchrun (`--tee 3`, any role: `[default3]:`, `[5:0]`), `[rank3]:`, `srun --label`, `mpirun
--tag-output`, MPICH's `[3]`, horovodrun, kubectl, container runtimes and compose, pdsh, Ray, vLLM,
SGLang, `[host:rank]`, NCCL's `host:pid:tid [dev]` and the stamps of `stamps`, in any order. It
refuses to guess: a line without a known prefix has no rank.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from msgspec import Struct

from unhang.logs.lines.stamps import STAMPS, in_year, read_stamp

MAX_LINE = 4000
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


class Line(Struct, frozen=True):
    """One line without its prefixes: made for every line that is looked at, so a quick struct.

    Attributes:
        rank: Global rank, or -1.
        local_rank: Rank on its node where only that is known, or -1.
        host: Host name, or "".
        pid: Process id, or -1.
        time_ns: Wall clock in ns since 1970 (as UTC where the line names no zone), or 0.
        text: What is left.
        level: "I", "W", "E" or "F" where the prefix says it, or "".
        zoned: The stamp names its zone: it can be compared with stamps of other hosts' zones.
    """

    text: str
    rank: int = -1
    local_rank: int = -1
    host: str = ""
    pid: int = -1
    time_ns: int = 0
    level: str = ""
    zoned: bool = False


def clean(raw: bytes) -> str:
    """Decode one line and take out terminal escapes and control characters; bounded in length."""
    text = raw[: MAX_LINE * 4].decode("utf-8", errors="replace")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    text = text.rstrip("\r\n")
    if text.isprintable():
        return text[:MAX_LINE]
    # A progress bar redraws with carriage returns: what stands at the end is what was seen.
    return _CONTROL.sub("", text.rpartition("\r")[2])[:MAX_LINE]


@dataclass(slots=True)
class _Found:
    """What the prefixes of one line have told so far: changed in place, millions of times."""

    rank: int = -1
    local_rank: int = -1
    host: str = ""
    pid: int = -1
    time_ns: int = 0
    level: str = ""
    zoned: bool = False


_Step = Callable[[re.Match[str], _Found], None]


def _set_rank(match: re.Match[str], found: _Found) -> None:
    found.rank = int(match["rank"])


def _set_local(match: re.Match[str], found: _Found) -> None:
    # What stood before it was the number of a launcher (srun --label torchrun …), not of a rank.
    found.rank, found.local_rank = -1, int(match["local"])
    found.host = found.host or match.groupdict().get("node") or ""


def _set_host_rank(match: re.Match[str], found: _Found) -> None:
    found.host, found.rank = match["host"], int(match["rank"])


def _set_host(match: re.Match[str], found: _Found) -> None:
    found.host = found.host or match["host"] or ""


def _set_nccl(match: re.Match[str], found: _Found) -> None:
    found.host, found.pid = found.host or match["host"], int(match["pid"])


def _set_pid(match: re.Match[str], found: _Found) -> None:
    fields = match.groupdict()
    found.pid = int(match["pid"])
    found.host = found.host or fields.get("host") or ""
    rank = fields.get("rank") or fields.get("tp")
    if rank:
        found.rank = int(rank)


def _set_level(match: re.Match[str], found: _Found) -> None:
    found.level = match["level"][0].replace("C", "F")


def _set_time(match: re.Match[str], found: _Found) -> None:
    if not found.time_ns:
        found.time_ns, found.zoned = read_stamp(match)
    fields = match.groupdict()
    tags = fields.get("tags")
    if tags and "PP" not in tags:
        found.rank = int(tags.rpartition("TP")[2]) if "TP" in tags else found.rank
    if fields.get("level"):
        _set_level(match, found)
    found.host = found.host or fields.get("host") or ""


def _set_nothing(match: re.Match[str], found: _Found) -> None:
    """What says nothing of whose line it is."""


_TIME = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d{1,9}))?"
_GLOG = (
    r"\[?(?P<level>[IWEF])(?P<month>\d\d?)(?P<day>\d\d) "
    + _TIME
    + r"(?: +\d+)?(?: [\w./-]+:\d+)?\]? ?"
)
_VLLM = (
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<month>\d\d)-(?P<day>\d\d) "
    + _TIME
    + r" \[?[\w./]+:\d+\] "
)
_SYSLOG = (
    r"(?P<name>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}(?P<day>\d{1,2}) "
    + _TIME
    + r" (?P<host>[A-Za-z][\w.-]*) (?=[\w./-]+(?:\[\d+\])?:)"
)

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_DIGITS = "0123456789"
# Names of counts and of tensors end in a number as well.
_NO_HOST = (
    r"(?!(?:step|epoch|iter\w*|loss|cuda|layer|line|param|stage|phase|part|batch|sample)\d+:"
    r"|gpu\d:)"
)

# Each step peels one prefix, and is tried where a line begins with one of its characters. They are
# tried in turn until none fits, so that launchers may stack.
_STEPS: tuple[tuple[str, str, _Step], ...] = (
    ("[", r"(?i:\[rank)(?: |: )?(?P<rank>\d{1,6})\]:? ?", _set_rank),
    ("[IWEF", _GLOG, _set_time),
    ("[0123456789abcdef", r"(?:[0-9a-f]{8} )?\[rank=(?P<rank>\d{1,6})\] \|\| ?", _set_rank),
    ("[", r"\[\d+,(?P<rank>\d{1,6})\]<(?:stdout|stderr|stddiag)>: ?", _set_rank),
    ("[", r"\[(?P<rank>\d{1,6})\]<(?:stdout|stderr)>:? ?", _set_rank),
    ("[", r"\[(?P<rank>\d{4,6})/\d{1,6}\](?=\[)", _set_rank),
    ("[", r"\[(?P<rank>\d{1,6})\] (?!finished |joined |=)(?=\S|  )", _set_rank),
    ("[", r"\[(?P<node>\d{1,6}):(?P<local>\d{1,4})\]:? ?", _set_local),
    ("[", r"\[(?:default|trainer_?|worker_?)(?P<local>\d{1,6})\]:? ?", _set_local),
    ("[", r"\[pod/(?P<host>[\w.-]+)/[\w.-]+\] ?", _set_host),
    ("[", r"\[(?P<host>[A-Za-z][\w.-]*):(?P<rank>\d{1,6})\](?:: ?|(?=\[))", _set_host_rank),
    ("[", r"\[(?P<host>[A-Za-z][\w.-]*):(?P<rank>\d{1,3})\] ?", _set_host_rank),
    ("[", r"\[(?P<host>[\w.-]*[A-Za-z][\w.-]*):(?P<pid>\d{4,9})\] ", _set_pid),
    ("[", r"\[(?:\w+(?:[/.]\w+)+:\d+)\] (?=\[)", _set_nothing),
    ("[", r"\[(?P<host>[A-Za-z][\w.-]*):pid=(?P<pid>\d+)\] ", _set_pid),
    ("[", r"\[(?P<host>[A-Za-z][\w.-]*):(?P<pid>\d+) ?:\d+:\d+\] +", _set_pid),
    (
        "[",
        r"\[(?!rank|node|host|gpu)[a-z][a-z_.-]{0,40}(?P<local>\d{1,4})\]: ?",
        _set_local,
    ),
    (
        "(",
        (
            r"\((?:Worker_TP(?P<tp>\d{1,5})|[\w.<>:-]+)?(?: rank=(?P<rank>\d{1,6}))? ?"
            r"pid=(?P<pid>\d{1,9})(?:, ip=(?P<host>[\w.:-]+))?\) ?"
        ),
        _set_pid,
    ),
    (
        "(",
        r"\((?:raylet|autoscaler|scheduler)(?:, ip=(?P<host>[\w.:-]+))?\) ?",
        _set_host,
    ),
    # Not the ranks that Horovod lists, with the names of the tensors that they lack.
    (" " + _DIGITS, r" {0,6}(?P<rank>\d{1,6}): (?!\[[A-Za-z_][\w./]*(?:, |\.\d+\]))", _set_rank),
    (_DIGITS, r"(?P<host>\d{1,3}(?:\.\d{1,3}){3}): ", _set_host),
    (
        _LETTERS,
        r"(?P<host>[A-Za-z][\w.-]*):(?P<pid>\d+):\d+ \[-?\d+\] ",
        _set_nccl,
    ),
    ("DIWEC", _VLLM, _set_time),
    ("IWEF", r"(?P<level>[IWEF]) (?=[\w./+-]+:\d+\] )", _set_level),
    *((firsts, pattern, _set_time) for firsts, pattern in STAMPS),
    ("JFMASOND", _SYSLOG, _set_time),
    ("k", r"kernel: |kern: \w+: ", _set_nothing),
    ("s", r"std(?:out|err)(?:: | [FP] )", _set_nothing),
    ("<", r"<std(?:out|err)>: ?", _set_nothing),
    (_LETTERS, r"(?P<host>[A-Za-z][\w.-]*\d) *(?:\| | \[std(?:err|out)\] )", _set_host),
    (
        _LETTERS,
        _NO_HOST + r"(?P<host>[a-z][a-z\d]*(?:[-.][\w.-]*)?\d): (?=\S|  )",
        _set_host,
    ),
    (">", r"(?:> ){1,6}", _set_nothing),
)
_FIRSTS = frozenset("[( ><" + _DIGITS + _LETTERS)


@lru_cache(maxsize=len(_FIRSTS))
def _steps(first: str) -> tuple[tuple[re.Pattern[str], _Step], ...]:
    """The steps to try where a line begins with that character."""
    return tuple((re.compile(pattern), step) for firsts, pattern, step in _STEPS if first in firsts)


_MAX_PREFIXES = 8
# Open MPI's --tag-output marks each write, and Python writes one line of a traceback in several.
_INNER_TAG = re.compile(r"\[\d+,(?P<rank>\d{1,6})\]<std(?:out|err|diag)>:")
_BODY_RANK = re.compile(
    r"\[(?:PG ID \d+ )?(?:PG GUID (?:0|default_pg)(?:\(default_pg\))? )?Rank (?P<rank>\d{1,6})\]"
    r"|\[RANK:(?P<axolotl>\d{1,6})\]|\bRankID:(?P<ascend>\d{1,6})\)"
)


def _without_inner_tags(text: str, rank: int) -> str:
    """The line without the tags that its own rank has inside it; another rank's would be news."""
    return _INNER_TAG.sub(lambda tag: "" if int(tag["rank"]) == rank else tag[0], text)


SHORT, MARKED = 256, 16


def parse_plain(raw: bytes, year: int = 1970) -> Line:
    """Like `parse_line`; short lines without a stamp of glog, as of stacks, come again."""
    again = len(raw) <= SHORT and raw.find(b":[", 0, MARKED) < 0
    return _parsed(raw, year) if again else parse_line(raw, year)


@lru_cache(maxsize=8_192)
def _parsed(raw: bytes, year: int) -> Line:
    return parse_line(raw, year)


def parse_line(raw: bytes, year: int = 1970) -> Line:
    """Peel the prefixes of one line.

    Args:
        raw: The line as read, with or without its newline.
        year: Year of stamps that have none (glog); the caller knows the file's date.
    """
    text = clean(raw)
    found = _Found()
    start = 0
    for _ in range(_MAX_PREFIXES):
        first = text[start : start + 1]
        for pattern, step in _steps(first) if first in _FIRSTS else ():
            match = pattern.match(text, start)
            if match:
                step(match, found)
                start = match.end()
                break
        else:
            break
    text = text[start:]
    if "]<std" in text:
        text = _without_inner_tags(text, found.rank)
    if found.rank < 0 and ("Rank" in text or "RANK:" in text):
        body = _BODY_RANK.search(text)
        if body:
            found.rank = int(next(number for number in body.groups() if number))
    return Line(
        text,
        found.rank,
        found.local_rank,
        found.host,
        found.pid,
        in_year(found.time_ns, year),
        found.level,
        found.zoned,
    )
