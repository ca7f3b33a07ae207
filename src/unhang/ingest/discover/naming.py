"""The rank, host and series that a dump's path tells.

torch writes the rank nowhere but into the name, after a prefix of the user's choice, so every usual
form is known here: `nccl_trace_rank_3`, `nccl_trace_rank_container-node02_5`, `_dump_5`,
`rank_5.json`, `trace-5.pickle`. What a name says is a claim: better sources overrule it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from unhang.bounds import is_rank
from unhang.errors import UsageError

_PACKED = re.compile(r"\.(?:gz|zst|zstd)$", re.IGNORECASE)
_EXTENSION = re.compile(
    r"\.(?:json|pickle|pkl|pt|bin|trace|dump|fr|txt|log|html|md|py)$", re.IGNORECASE
)
_FOREIGN_EXTENSION = re.compile(
    r"\.(?:txt|log|out|err|html?|md|py|sh|ya?ml|toml|csv|tsv|png|svg|pdf|duckdb|parquet|so|pyc)$",
    re.IGNORECASE,
)
_AFTER_WORD = re.compile(r"rank[-_.]?(\d{1,9})(?![\d.])", re.IGNORECASE)
_PROCESS = re.compile(r"pid\d+$")
"""What our recorder calls the dump of a process that has no rank yet."""
_AT_END = re.compile(r"(\d{1,9})$")
_DUMP_WORDS = re.compile(
    r"rank|dump|trace|nccl|hccl|comm_lib|flight|(?:^|[-_.])fr(?:[-_.]|$)", re.IGNORECASE
)
_HOST = re.compile(r"rank[-_](?P<host>[A-Za-z][\w.-]*?)[-_]$")
_KINDS = frozenset(("stacks", "logs", "ras", "traces"))
"""Folders of a case that hold no dumps."""
_DIGITS = re.compile(r"(\d+)")
_GENERIC_FOLDERS = frozenset(
    {
        "dumps",
        "dump",
        "calls",
        "nccl",
        "gloo",
        "nccl_trace",
        "fr",
        "flight_recorder",
        "traces",
        "tmp",
    }
)


@dataclass(frozen=True, slots=True)
class NameClaim:
    """What one path claims.

    Attributes:
        rank: Global rank, or -1 where the name has no number that could be one.
        host: Host in the name, or "".
        folder: Nearest folder whose name means something (often a host), or "".
        series: Folder and prefix: files of one series were written by one recorder of one job.
    """

    rank: int
    host: str
    folder: str
    series: str


def compile_rank_pattern(pattern: str | None) -> re.Pattern[str] | None:
    """Check and compile what `--rank-pattern` was given.

    Raises:
        UsageError: It is no regular expression, or has no group that captures the rank.
    """
    if pattern is None:
        return None
    hint = r"Write the rank as a group of digits, for example: 'node\d+_(\d+)\.bin'"
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--rank-pattern is not a regular expression: {error}", hint) from error
    if not compiled.groups:
        raise UsageError("--rank-pattern has no group that captures the rank", hint)
    return compiled


def read_name(path: str, pattern: re.Pattern[str] | None = None) -> NameClaim:
    """Take a path apart.

    Args:
        path: Relative to what the user named, with "/" between folders.
        pattern: The user's own; its group "rank" or first group is the rank. It is searched in the
            whole path, so that it may use a folder's name.
    """
    folder, _, name = path.rpartition("/")
    stem = _EXTENSION.sub("", _PACKED.sub("", name))
    if pattern is not None:
        found = pattern.search(path)
        text = "" if found is None else found["rank" if "rank" in pattern.groupindex else 1] or ""
        rank = _rank(text) if _AT_END.fullmatch(text) else -1
        return NameClaim(rank, "", _meaning_of(folder), folder)
    match = _last(_AFTER_WORD, stem) or _AT_END.search(stem)
    if match is None or _PROCESS.search(stem) or _rank(match[1]) < 0:
        return NameClaim(-1, "", _meaning_of(folder), f"{folder}/{stem}")
    prefix = stem[: match.start(1)]
    host = _HOST.search(prefix)
    if host is None:
        return NameClaim(int(match[1]), "", _meaning_of(folder), f"{folder}/{prefix}")
    series = f"{folder}/{prefix[: host.start('host')]}"
    return NameClaim(int(match[1]), host["host"], _meaning_of(folder), series)


def looks_like_dump(path: str) -> bool:
    """Whether a name is a dump's, so that a file that cannot be read is still one rank's loss."""
    name = path.rpartition("/")[2]
    if looks_foreign(name):
        return False
    return bool(_DUMP_WORDS.search(name)) and read_name(path).rank >= 0


def looks_foreign(name: str) -> bool:
    """Whether a file's name says that it is something else: a log, a script, a hidden file."""
    return name.startswith(".") or bool(_FOREIGN_EXTENSION.search(_PACKED.sub("", name)))


def looks_like_evidence(path: str) -> bool:
    """Whether a member of an archive is evidence that readers of folders know, and no dump."""
    folder, _, name = path.rpartition("/")
    log = name.endswith((".log", ".out", ".err")) and not name.startswith(".")
    return log or (folder.rpartition("/")[2] in _KINDS and name.endswith((".json", ".txt")))


def natural_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key that puts rank_2 before rank_10."""
    return tuple(
        (0, int(part), "") if part.isdecimal() else (1, 0, part) for part in _DIGITS.split(text)
    )


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = None
    for match in pattern.finditer(text):
        found = match
    return found


def _rank(digits: str) -> int:
    """A number as a rank; -1 where it is too high for one: a date, a process, a time."""
    return int(digits) if is_rank(int(digits)) else -1


def _meaning_of(folder: str) -> str:
    for part in reversed(folder.split("/")):
        if part and part.lower() not in _GENERIC_FOLDERS:
            return part
    return ""
