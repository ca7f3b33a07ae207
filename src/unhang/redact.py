"""Taking names out of what leaves the house: hosts, users, paths, addresses, secrets.

The same name becomes the same stand-in everywhere ("host1", "user1", "dir1"), so that a redacted
case tells the same story. File names, line numbers and the insides of installed packages stay: they
are what a verdict is about. Of command lines and environments only values that are known to be
harmless stay. What is no name by its form or its field cannot be recognised in a text; tell the
`Redactor` further hosts and users where you know them. Replaced too much is the better mistake.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from typing import Any, Final, TypeVar, cast

from unhang.case import Case, More
from unhang.model import Note
from unhang.report import Report, Unlike
from unhang.stacks.ownership import installed_at
from unhang.telltale import (
    REMOVED,
    is_known_variable,
    is_secret_field,
    is_secret_name,
    known_words,
    replaced,
)
from unhang.wording import count_of

T = TypeVar("T")

SECRET: Final = "<secret>"  # noqa: S105 - what stands where a secret was

DROPPED: Final = "<dropped>"
"""What replaces a value that may or may not be harmless."""

_PATH: Final = re.compile(
    r"(?<![\w/.<-])(?:/[\w.@+~-]+)+/?"
    r"|(?:(?<=file://)|(?<=(?:s3|gs):/)|(?<=(?:hdfs|abfs):/))(?:/[\w.@+~-]+)+"
)
_SOURCES: Final = re.compile(r"/(?:third_party/gloo|torch/csrc|aten/src|c10)/")
"""Sources of torch, as its messages name them: public, and what rules know a message by."""
_HOME: Final = re.compile(r"/(?:home|Users)/([\w.@+-]+)")
_EMAIL: Final = re.compile(r"(?<![\w.+-])([\w.+-]+)@([\w-]+(?:\.[\w-]+)+)\b")
_FQDN: Final = re.compile(
    r"(?<![\w./-])(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+"
    r"(?:com|net|org|edu|gov|mil|io|ai|dev|cloud|local|localdomain|internal|intranet|intra|corp|lan|"
    r"cluster|svc|de|uk|fr|ch|cn|jp|kr|in|us|eu|ca|au)(?![\w-]|\.\w)",
    re.IGNORECASE,
)
_IS: Final = r"(?:=|[\"']\s*[:=]\s*)[\"']?"  # as in the environment or in JSON, not as in prose
_HOST_FIELD: Final = re.compile(
    r"\b(?:MASTER_ADDR|HOSTNAME|SLURMD_NODENAME|SLURM_SUBMIT_HOST|host(?:name)?|nodename)"
    rf"{_IS}([A-Za-z0-9][\w.-]*)"
)
_USER_FIELD: Final = re.compile(
    rf"\b(?:USER|LOGNAME|USERNAME|SLURM_JOB_USER|user(?:name)?){_IS}([A-Za-z_][\w.-]*)"
)
_IPV4: Final = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)")
_IPV6: Final = re.compile(
    r"(?<![\w:.])(?=[0-9a-f:]*:[0-9a-f:]*:)[0-9a-f:]{3,39}(?![\w:])", re.IGNORECASE
)
_MAC: Final = re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.IGNORECASE)
_GPU: Final = re.compile(
    r"\b(GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE
)

_LINK: Final = re.compile(r"(?<!\S)(\S+) (?:->|-) (\S+?)(?::\d+)?")
"""What a finding about a link is about: "node01 -> node02:29500"."""

_WORD: Final = re.compile(r"[\w-]+(?:\.[\w-]+)*")

_NAMED_KINDS: Final = ("host", "user")
_SYSTEM_ROOTS: Final = frozenset(
    ("usr", "lib", "lib64", "bin", "sbin", "opt", "etc", "dev", "proc", "sys", "tmp", "run", "var")
)
_KEPT_NAMES: Final = frozenset(
    # Words of our own reports, and names that identify no user: replaced in paths only.
    (
        "rank", "ranks", "group", "groups", "call", "calls", "node", "nodes", "host", "hosts",
        "user", "users", "train", "trainer", "data", "test", "tests", "root", "home", "work",
        "job", "jobs", "model", "models", "project", "admin", "ubuntu", "runner", "python",
        "torch", "nccl", "gloo", "localhost", "none", "null", "true", "false", "default", "dumps",
        "dump", "worker", "workers", "launcher",
    )
)  # fmt: skip
_KEPT_PARTS: Final = frozenset(("home", "Users", "root", "user"))
_HOST_VARIABLES: Final = frozenset(("MASTER_ADDR", "HOSTNAME", "SLURMD_NODENAME"))
_SHORTEST_PART = 3
_MOST_PARTS = 40
_MAX_REMEMBERED = 50_000
_HOST_KEYS: Final = frozenset(("host", "hostname", "host_name", "node", "nodename"))
_USER_KEYS: Final = frozenset(("user", "username", "logname"))
_NO_ADDRESSES: Final = ("127.", "0.0.0.0", "255.255.255.255")  # noqa: S104 - compared, not bound
_DOCUMENTATION_NETS: Final = ("192.0.2.", "198.51.100.", "203.0.113.")  # RFC 5737


@dataclass(slots=True)
class Redactor:
    """Replaces names consistently; keep one for everything that belongs together.

    Attributes:
        stand_ins: kind -> original -> what stands for it. Private: it undoes the redaction.
        counts: In how many places each kind was replaced; equal strings count once.
    """

    stand_ins: dict[str, dict[str, str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    _made: Counter[str] = field(default_factory=Counter)
    _given: set[str] = field(default_factory=set)
    _seen: dict[tuple[str, str], str] = field(default_factory=dict)
    _read: set[tuple[str, str]] = field(default_factory=set)

    def learn(self, *, hosts: Iterable[str] = (), users: Iterable[str] = ()) -> None:
        """Name hosts and users that are to be replaced wherever they stand as a word."""
        for host in hosts:
            self._learn("host", host)
        for user in users:
            self._learn("user", user)

    def keep(self, names: Iterable[str]) -> None:
        """Leave names as they are: who asks for that may read them."""
        self._given.update(filter(None, names))

    def _learn(self, kind: str, name: str) -> None:
        kept = not name or name.isdigit() or name.lower() in _KEPT_NAMES
        if not (kept or is_address(name)):
            self._stand_in(kind, name)

    def _stand_in(self, kind: str, original: str) -> str:
        """Return what stands for a name, making it up at first sight."""
        if original in self._given:
            return original
        known = self.stand_ins.setdefault(kind, {})
        if original not in known:
            if kind == "host" and "." in original:  # node7.example.org is node7
                short = self._stand_in(kind, original.split(".", 1)[0])
                known[original] = short
            else:
                self._made[kind] += 1
                known[original] = _MAKERS[kind](self._made[kind])
            self._given.add(known[original])
            if kind in _NAMED_KINDS:  # they count wherever they stand as a word
                self._seen.clear()
        return known[original]

    def _replace(self, kind: str, original: str) -> str:
        stand_in = self._stand_in(kind, original)
        self.counts[kind] += stand_in != original
        return stand_in

    def text(self, text: str) -> str:
        """Return a text without names, addresses and secrets."""
        self._learn_from(text)
        return self._clean(text)

    def _learn_from(self, text: str) -> None:
        for pattern, kind in ((_HOME, "user"), (_USER_FIELD, "user"), (_HOST_FIELD, "host")):
            for name in pattern.findall(text):
                self._learn(kind, name)

    def _clean(self, text: str) -> str:
        text = replaced(text, self._secret)
        text = _EMAIL.sub(
            lambda m: f"{self._replace('user', m[1])}@{self._replace('host', m[2])}", text
        )
        text = _PATH.sub(lambda m: self._path(m[0]), text)
        text = _FQDN.sub(lambda m: self._replace("host", m[0]), text)
        text = _GPU.sub(lambda m: self._replace("device", m[0]), text)
        text = _MAC.sub(lambda m: self._replace("MAC address", m[0].lower()), text)
        text = _IPV4.sub(lambda m: self._address(m[0]), text)
        text = _IPV6.sub(lambda m: self._address(m[0]), text)
        return _WORD.sub(lambda m: self._word(m[0]), text)

    def _secret(self, secret: str) -> str:
        if secret in (SECRET, REMOVED):
            return secret
        self.counts["secret"] += 1
        return SECRET

    def _path(self, path: str) -> str:
        """Keep the file's name, and what is below packages or torch's sources; replace the rest."""
        cut = installed_at(path)
        if cut < 0:
            source = _SOURCES.search(path)
            cut = source.start() if source else path.rfind("/", 0, len(path) - 1)
        head, tail = path[: max(cut, 0)], path[max(cut, 0) :]
        parts = head.split("/")
        if len(parts) > 1 and parts[1] in _SYSTEM_ROOTS and not _HOME.search(head):
            return path
        return "/".join(self._path_part(parts, place) for place in range(len(parts))) + tail

    def _path_part(self, parts: list[str], place: int) -> str:
        part = parts[place]
        if not part or part in _KEPT_PARTS:
            return part
        if place and parts[place - 1] in ("home", "Users"):
            return self._replace("user", part)
        if part in self.stand_ins.get("user", {}):
            return self._replace("user", part)
        return self._replace("path", part)

    def _address(self, text: str) -> str:
        if not is_address(text) or text.startswith(_NO_ADDRESSES):
            return text
        address = ipaddress.ip_address(text)
        if address.is_loopback or address.is_unspecified:
            return text
        return self._replace(f"IPv{address.version} address", str(address))

    def _word(self, word: str) -> str:
        """Replace a word that is a known host or user, or the parts of it that are."""
        if self._is_known(word):
            return self._replace("host" if word in self.stand_ins.get("host", {}) else "user", word)
        if "." in word:
            return ".".join(map(self._word, word.split(".")))
        parts = re.split("([_-])", word)  # "node-7_rank0" names the host node-7
        return "".join(self._parts(parts)) if 1 < len(parts) <= _MOST_PARTS else word

    def _parts(self, parts: list[str]) -> Iterable[str]:
        """The parts of a word and what is between them, the longest known names replaced."""
        first = 0
        while first < len(parts):
            for last in range(len(parts), first, -1):
                name = "".join(parts[first:last])
                if _is_telling(name) and self._is_known(name):
                    yield self._word(name)
                    break
            else:
                last = first + 1
                yield parts[first]
            first = last

    def _is_known(self, word: str) -> bool:
        if word.isdigit() or word.lower() in _KEPT_NAMES:  # numbers are ranks, lines, sizes
            return False
        return any(word in self.stand_ins.get(kind, {}) for kind in _NAMED_KINDS)

    def value(self, value: T) -> T:
        """Redact nested data as JSON and pickled dumps hold it: keys stay, strings are cleaned.

        Strings under keys like "host" and "user" are names as a whole; under keys that speak of
        secrets they go altogether.
        """
        for key, text in _strings("", value):
            self._learn_field(key, text)
        return cast("T", self._redacted("", value))

    def _learn_field(self, key: str, text: str) -> None:
        if (key, text) in self._read:
            return
        if len(self._read) >= _MAX_REMEMBERED:
            self._read.clear()
        self._read.add((key, text))
        if key in _HOST_KEYS or key in _HOST_VARIABLES:
            self._learn("host", text)
        elif key in _USER_KEYS:
            self._learn("user", text)
        elif key == "id" and (ends := _LINK.fullmatch(text)):
            self._learn("host", ends[1])
            self._learn("host", ends[2])
        self._learn_from(text)

    def _redacted(self, key: str, value: Any) -> Any:  # noqa: ANN401 - nested data
        if isinstance(value, (str, bytes, bytearray)):
            return self._redacted_text(key, value)
        if isinstance(value, Mapping):
            told = value.get("name", value.get("key"))  # {"name": "DB_PASSWORD", "value": "…"}
            if isinstance(told, str) and "value" in value and is_secret_name(told):
                value = {**value, "value": self._secret(str(value["value"]))}
            return {self._key(k): self._redacted_item(key, k, v) for k, v in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            is_command = key == "command" and all(isinstance(word, str) for word in value)
            items = self._command(value) if is_command else (self._redacted(key, x) for x in value)
            kind = next(k for k in (list, tuple, set, frozenset) if isinstance(value, k))
            if hasattr(value, "_make"):  # a named tuple stays one
                return type(value)._make(items)
            return kind(items)
        if is_dataclass(value) and not isinstance(value, type):
            return _map_fields(value, self._redacted)
        return value

    def _key(self, key: Any) -> Any:  # noqa: ANN401 - nested data
        """A key of a mapping: names of fields stay, and what is no such name is cleaned."""
        if not isinstance(key, str):
            return self._redacted("", key)
        if key.isidentifier() and key not in self.stand_ins.get("host", {}):
            return replaced(key, self._secret)
        return self._clean(key)

    def _redacted_item(self, above: str, key: Any, value: Any) -> Any:  # noqa: ANN401 - nested data
        """A value of a mapping; those of an environment stay only where they are known."""
        name = key if isinstance(key, str) else ""
        if above == "environment" and not is_known_variable(name, value):
            return self._dropped(value)
        return self._redacted(name, value)

    def _dropped(self, value: Any) -> str:  # noqa: ANN401 - nested data
        if value in (SECRET, DROPPED, REMOVED):
            return str(value)
        self.counts["unknown value"] += 1
        return DROPPED

    def _command(self, words: Iterable[str]) -> Iterable[str]:
        """What runs, names of options, and values that are plain; all other words are dropped."""
        for known, unknown in known_words(words):
            yield self._clean(known) + (self._dropped(unknown) if unknown else "")

    def _redacted_text(self, key: str, text: str | bytes | bytearray) -> str | bytes:
        """Clean a string by its key and its form, each pair once."""
        if isinstance(text, Enum):  # A word of our own, even where it is a str.
            return text
        if not isinstance(text, str):  # nothing of ours or of torch's holds bytes
            return self._dropped(text).encode() if text else b""
        if key == "command":
            return " ".join(self._command(text.split()))
        if (key, text) not in self._seen:
            if len(self._seen) >= _MAX_REMEMBERED:
                self._seen.clear()
            if text and is_secret_field(key, text):
                self._seen[key, text] = self._secret(text)
            else:
                self._seen[key, text] = self._clean(text)
        return self._seen[key, text]

    def report(self, report: Report) -> Report:
        """Return the report without names, with a note that says what was replaced."""
        known = tuple(map(self._unlike, report.differences))
        clean = replace(self.value(report), differences=known)
        return replace(clean, notes=(*clean.notes, Note("info", "redaction", self.summary())))

    def _unlike(self, found: Unlike) -> Unlike:
        """Values of variables stay where they are known, as in an environment; so do arguments."""
        as_key = "command" if found.name == "arguments" else found.name
        above = "environment" if found.name.isupper() else ""
        values = (self._redacted_item(above, as_key, side.value) for side in found.sides)
        sides = zip(found.sides, values, strict=True)
        return replace(found, sides=tuple(replace(side, value=value) for side, value in sides))

    def case(self, case: Case) -> Case:
        """Return the case without names: paths, hosts, log lines, commands, notes."""
        bulk = (
            "dumps",
            "samples",
            "log_events",
            "log_facts",
            "last_calls",
            "reports",
            "ras",
            "nodes",
            "namespace",
            "notes",
            "threads",
            "incident",
        )
        for name in bulk:
            for key, text in _strings(name, getattr(case, name)):
                self._learn_field(key, text)
        frames = tuple(self._redacted("", frame) for frame in case.stacks.frames)
        return replace(
            case,
            stacks=replace(case.stacks, frames=frames),
            more=None if case.more is None else self._more(case.more),
            **{name: self._redacted(name, getattr(case, name)) for name in bulk},
        )

    def _more(self, more: More) -> More:
        """What makes more of the case, without names as well."""

        def redacted(ranks: Collection[int]) -> Case | None:
            case = more(ranks)
            return None if case is None else self.case(case)

        return redacted

    def summary(self) -> str:
        """Say how many different names of each kind were replaced; it names none of them."""
        kinds = [
            count_of(len(names), kind, f"{kind}es" if kind.endswith("s") else "")
            for kind, names in sorted(self.stand_ins.items())
            if self.counts[kind]
        ]
        more = ("secret", "unknown value")
        kinds += [count_of(self.counts[kind], kind) for kind in more if self.counts[kind]]
        return f"Replaced: {', '.join(kinds)}." if kinds else "Nothing had to be replaced."


def _map_fields(value: Any, change: Callable[[str, Any], Any]) -> Any:  # noqa: ANN401 - a dataclass
    return replace(value, **{f.name: change(f.name, getattr(value, f.name)) for f in fields(value)})


def _strings(key: str, value: Any) -> Iterable[tuple[str, str]]:  # noqa: ANN401 - nested data
    """Yield every string in nested data with the key under which it stands."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _strings(name if isinstance(name, str) else "", item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(key, item)
    elif is_dataclass(value) and not isinstance(value, type):
        for f in fields(value):
            yield from _strings(f.name, getattr(value, f.name))


def _is_telling(name: str) -> bool:
    """Whether a name counts as a part of a word too: n1 does, but "in" is in "built-in"."""
    return len(name) >= _SHORTEST_PART or any(map(str.isdigit, name))


def is_address(text: str) -> bool:
    """Whether a text is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _ipv4(number: int) -> str:
    """Addresses reserved for documentation, then those that are never assigned (240.0.0.0/4)."""
    place, last = divmod(number - 1, 254)
    if place < len(_DOCUMENTATION_NETS):
        return f"{_DOCUMENTATION_NETS[place]}{last + 1}"
    return str(ipaddress.IPv4Address(0xF0000000 + number))


_MAKERS: Final[dict[str, Callable[[int], str]]] = {
    "host": lambda n: f"host{n}",
    "user": lambda n: f"user{n}",
    "path": lambda n: f"dir{n}",
    "device": lambda n: f"GPU-00000000-0000-0000-0000-{n:012x}",
    "MAC address": lambda n: ":".join(f"02{n:010x}"[i : i + 2] for i in range(0, 12, 2)),
    "IPv4 address": _ipv4,
    "IPv6 address": lambda n: f"2001:db8::{n:x}",
}
