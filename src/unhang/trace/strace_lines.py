"""What strace prints, line by line: `-f`, `-ff`, `-t`, `-tt`, `-ttt`, `-r`, `-T`, `-y`, or bare.

Where strace did not name descriptors itself, they are followed from the calls that open them. What
comes from outside is bounded: so many threads, so many files, so many different calls are shown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

MAX_THREADS = 100_000
MAX_TARGETS = 10_000
_LONGEST = 4_096

_COMES_AND_GOES = re.compile(
    r"(?:/\S*/)?strace: Process \d+ (?:at|de)tached(?: with \d+ threads)?$"
)
_PREFIX = re.compile(
    r"^(?:(?:\[pid +(?P<pid>\d+)\]|(?P<bare>\d+)(?= )) +)?"
    r"(?:(?P<clock>\d\d:\d\d:\d\d(?:\.\d+)?)|(?P<epoch>\d{9,11}\.\d+)|(?P<since>\d{1,6}\.\d{6}))? *"
)
_CALL = re.compile(r"^(?:<\.\.\. )?(?P<name>[a-z_]\w*)(?: resumed>|\()")
_DESCRIPTOR = re.compile(r"\((\d+)<((?:[^<>]|<[^<>]*>)*)>")
_BARE_DESCRIPTOR = re.compile(r"\((\d+)[,) ]")
_WAITING = re.compile(r"(?:<unfinished \.\.\.>|<detached \.\.\.>)\s*$")
_SURE = re.compile(r"\) += (?:-?\d|0x|\?)|<unfinished \.\.\.>|<detached \.\.\.>|<\.\.\. ")
_TOOK = re.compile(r"<(?P<seconds>\d+\.\d+)>\s*$")
_RESULT = re.compile(r"\) += (?P<value>-?\w+)(?: (?P<error>E[A-Z0-9]+))?")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ADDRESS = re.compile(
    r'htons\((\d+)\)|inet_(?:addr|pton)\((?:AF_\w+, )?"([^"]+)"|sun_path="([^"]+)"'
)
_ENDED = re.compile(r"^\+\+\+ (?:exited with (\d+)|killed by (\w+))")
_OPENS = frozenset({"open", "openat", "openat2", "creat"})
_FORKS = frozenset({"clone", "clone3", "fork", "vfork"})
_COPIES = frozenset({"dup", "dup2", "dup3"})
_NO_DESCRIPTOR = frozenset(
    {"exit", "exit_group", "kill", "tgkill", "wait4", "waitid", "getpriority", "setpriority"}
)


@dataclass(slots=True)
class SyscallTrace:
    """What one thread did: how often it made which call, and the call that it is still in.

    Attributes:
        counts: Finished calls by name.
        spent: Seconds in finished calls, by name and what they were about.
        alike: How often it made which call about the same with the same result.
        waiting: Text of the unfinished call, or "".
        target: The file or socket that the unfinished call is about, as strace names it, or "".
        awake_s: Seconds in which it used or wanted a core; -1.0 where unknown.
        first_s, last_s: When it was first and last heard of, in seconds; -1.0 where unstamped.
        ended: "exited with 0", "killed by SIGKILL", or "".
    """

    pid: int
    counts: Counter[str] = field(default_factory=Counter)
    spent: Counter[tuple[str, str]] = field(default_factory=Counter)
    alike: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    waiting: str = ""
    target: str = ""
    awake_s: float = -1.0
    first_s: float = -1.0
    last_s: float = -1.0
    ended: str = ""

    def feed(self, rest: str, name: str, target: str) -> None:
        """Take one line of this thread, without its process id and its stamp."""
        if _WAITING.search(rest) or " = " not in rest:
            self.waiting = _WAITING.sub("", rest).strip(" ,")
            self.target = target
            return
        self.counts[name] += 1
        about = target or self.target
        took = _TOOK.search(rest)
        if took and ((name, about) in self.spent or len(self.spent) < MAX_TARGETS):
            self.spent[name, about] += float(took["seconds"])  # type: ignore[assignment]  # a Counter adds floats as well
        likeness = (name, about or _first_argument(rest), _outcome(rest))
        if likeness in self.alike or len(self.alike) < MAX_TARGETS:
            self.alike[likeness] += 1
        self.waiting = self.target = ""

    @property
    def name(self) -> str:
        """How it is called in a sentence."""
        return f"Thread {self.pid}" if self.pid >= 0 else "The process"

    @property
    def total(self) -> int:
        """Number of finished calls."""
        return sum(self.counts.values())


@dataclass(slots=True)
class StraceReader:
    """Takes strace's output line by line.

    Attributes:
        main_pid: Whose lines those without a process id are.
        rest: The first lines that are none of a thread, such as strace's own complaints.
        known: Whether a line is surely strace's: other programs print brackets too.
    """

    main_pid: int = -1
    traces: dict[int, SyscallTrace] = field(default_factory=dict)
    rest: list[str] = field(default_factory=list)
    known: bool = False
    _files: dict[int, dict[int, str]] = field(default_factory=dict)
    _since_s: float = 0.0
    _day_s: float = 0.0
    _clock_s: float = -1.0

    def feed(self, line: str) -> None:
        """Take one line, whatever it is."""
        line = _COMES_AND_GOES.sub("", line[:_LONGEST].rstrip("\n"))
        found = _PREFIX.match(line)
        told = found and (found["pid"] or found["bare"])
        pid = int(told) if told else self.main_pid
        rest = line[found.end() :] if found else line
        call, ended = _CALL.match(rest), _ENDED.match(rest)
        if not call and not ended:
            if len(self.rest) < 4:  # noqa: PLR2004 - enough for an error
                self.rest.append(line)
            return
        self.known = self.known or ended is not None or _SURE.search(rest) is not None
        if pid not in self.traces and len(self.traces) >= MAX_THREADS:
            return
        trace = self.traces.setdefault(pid, SyscallTrace(pid))
        if (at := self._moment(found)) >= 0:
            trace.first_s = at if trace.first_s < 0 else trace.first_s
            trace.last_s = max(trace.last_s, at)
        if ended:
            trace.ended = f"exited with {ended[1]}" if ended[1] else f"killed by {ended[2]}"
            trace.waiting = trace.target = ""
        elif call:
            trace.feed(rest, call["name"], self._target(pid, rest, call["name"]))
            self._follow(pid, rest, call["name"])

    def read(self, lines: Iterable[str]) -> None:
        """Take all lines."""
        for line in lines:
            self.feed(line)

    @property
    def seconds(self) -> float:
        """From the first stamp to the last; 0 where there are none."""
        stamped = [trace for trace in self.traces.values() if trace.first_s >= 0]
        if not stamped:
            return 0.0
        return max(t.last_s for t in stamped) - min(t.first_s for t in stamped)

    def _moment(self, found: re.Match[str] | None) -> float:
        """The stamp of a line in seconds; -1 where it has none. Clocks go on over midnight."""
        if found is None:
            return -1.0
        if found["epoch"]:
            return float(found["epoch"])
        if found["since"]:
            self._since_s += float(found["since"])
            return self._since_s
        if not found["clock"]:
            return -1.0
        hours, minutes, seconds = found["clock"].split(":")
        at = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
        if at < self._clock_s - 43_200:
            self._day_s += 86_400
        self._clock_s = at
        return self._day_s + at

    def _target(self, pid: int, rest: str, name: str) -> str:
        """What a call is about: as strace names its descriptor, else as it was opened."""
        if named := _DESCRIPTOR.search(rest):
            return named[2]
        bare = None if name in _NO_DESCRIPTOR else _BARE_DESCRIPTOR.search(rest)
        return self._open(pid).get(int(bare[1][:9]), "") if bare else ""

    def _open(self, pid: int) -> dict[int, str]:
        return self._files.setdefault(pid, {})

    def _follow(self, pid: int, rest: str, name: str) -> None:
        """Remember which descriptor is what."""
        result = _RESULT.search(rest)
        value = int(result["value"]) if result and result["value"].isdecimal() else -1
        files = self._open(pid)
        bare = _BARE_DESCRIPTOR.search(rest)
        if name == "close" and bare:
            files.pop(int(bare[1][:9]), None)
        elif name == "connect" and bare:
            files[int(bare[1][:9])] = _address(rest)
        elif value >= 0 and len(files) < MAX_TARGETS:
            if name in _OPENS and (path := _QUOTED.search(rest)):
                files[value] = path[1]
            elif name == "socket":
                files[value] = "a socket"
            elif name in _COPIES and bare:
                files[value] = files.get(int(bare[1][:9]), "")
            elif name in _FORKS and value > 0:
                self._files[value] = files if "CLONE_FILES" in rest else dict(files)


def _address(rest: str) -> str:
    """The other side of a connect: "10.0.0.2:6000", or the path of a unix socket."""
    port = host = ""
    for found in _ADDRESS.finditer(rest):
        if found[3]:
            return f"socket {found[3]}"
        port, host = found[1] or port, found[2] or host
    return f"socket to {host}:{port}" if host else "a socket"


def _first_argument(rest: str) -> str:
    quoted = _QUOTED.search(rest)
    return quoted[1] if quoted else rest.partition("(")[2].partition(",")[0][:60]


def _outcome(rest: str) -> str:
    found = _RESULT.search(rest)
    return (found["error"] or found["value"]) if found else ""
