"""One file, many ranks: takes apart what launchers and servers put into one text.

Launchers, kubectl, container runtimes, Ray and pdsh say in front of every line whose it is, one
behind the other; torch's debug server writes one page with a heading a rank, and people write
headings by hand. What is left is the
text of one process each, for the formats to read. It refuses to guess: a label counts only if all
lines have it, and a number of a process on its node is no rank.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from unhang.model import UNKNOWN_RANK


class Piece(NamedTuple):
    """The part of a text that belongs to one rank or host, as far as the text says it."""

    text: str
    rank: int = UNKNOWN_RANK
    host: str = ""


_SERVER_TEXT = re.compile(r"^=== Rank (\d+): (.*?) ===$", re.MULTILINE)
_SERVER_PAGE = re.compile(r"<h2>Rank (\d+): (.{0,300}?)</h2>(.*?)(?=<h2>Rank |\Z)", re.DOTALL)
_STAMP = r"\d{4}-\d\d-\d\d[T ][\d:]{8}(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_NUMBERED = r"(?:\[rank=(?P<rank>\d{1,6})\])?"
_LABELS = tuple(
    re.compile(rf"^{label}(?P<rest>.*)$")
    for label in (
        r" *(?P<rank>\d+):",  # srun --label
        r"\[\d+,(?P<rank>\d+)\]<std\w+>:",  # mpirun --tag-output
        r"\w{3} \w{3} [ \d]\d [\d:]{8} \d{4}\[(?P<rank>\d+)\]<std\w+>:",  # horovodrun
        r"\[rank(?P<rank>\d+)\]:",  # torch's own log lines
        r"(?P<who>\[(?:default|\d{1,6}:)\d{1,4}\]):",  # torchrun --tee
        r"\[(?P<rank>\d{1,6})\](?: |$)",  # MPICH
        rf"(?P<who>\(\w+{_NUMBERED}(?: \w+)? pid=\d+(?:, ip=(?P<host>[\w.:]+))?\)) ?",  # Ray
        r"\[ *\d+s\](?: |$)",  # builds of packages
        r"\[pod/(?P<host>[\w.-]+)/[\w.-]+\](?: |$)",  # kubectl logs --prefix
        r"(?P<host>[A-Za-z][\w.-]*) *\|",  # compose
        rf"{_STAMP} std(?:out|err) [FP](?: |$)",  # container runtimes
        rf"\[?{_STAMP}\]?(?: |$)",
        r"[0-9a-f]{8} (?=\[rank=)",  # Determined: its container, its rank
        r"\[rank=(?P<rank>\d{1,6})\] \|\| ?",
        r"std(?:out|err):",
        r"(?:> ?)+",
        r"(?P<host>[A-Za-z][\w.-]*):",  # pdsh, clush
    )
)
_HEADING = re.compile(
    r"^[\s=#*<>~_\-\[(`:|]*(?:[A-Za-z' ]{1,40} )?rank[ _#:=-]{0,3}(?P<rank>\d{1,6})\b"
    r"[A-Za-z ]{0,12}[\s=#*<>~_\-\])`:|.]*$",
    re.IGNORECASE,
)
"""What people write above a stack: "====rank0====", "rank 1", "The stack for rank0:"."""
_FENCE = re.compile(r"^\s*(?:```|~~~)\w*\s*$")
_DEEPEST = 4
_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_PROBE_LINES = 200


def split(text: str) -> list[Piece]:
    """The pieces of a text; the whole text as one piece where nothing is labelled."""
    if pieces := list(_server_page(text)) or list(_server_text(text)):
        return pieces
    text = _ESCAPE.sub("", text) if "\x1b" in text else text
    if "```" in text or "~~~" in text:
        text = "\n".join(line for line in text.splitlines() if not _FENCE.match(line))
    found = _below([Piece(text)], _DEEPEST)
    return [part for piece in found for part in _by_headings(piece)]


def _by_headings(piece: Piece) -> Iterator[Piece]:
    """The parts below headings that people wrote by hand, and what stands above the first one."""
    if piece.rank != UNKNOWN_RANK or "rank" not in piece.text.lower():
        yield piece
        return
    rank, lines = UNKNOWN_RANK, list[str]()
    for line in piece.text.splitlines():
        heading = _HEADING.match(line)
        if heading is None:
            lines.append(line)
            continue
        if rank != UNKNOWN_RANK or any(map(str.strip, lines)):
            yield Piece("\n".join(lines), rank, piece.host)
        rank, lines = int(heading["rank"]), []
    yield piece if rank == UNKNOWN_RANK else Piece("\n".join(lines), rank, piece.host)


def _below(pieces: list[Piece], deepest: int) -> list[Piece]:
    """Pieces without their labels, and without those that stand behind these."""
    found = [_taken_apart(piece) for piece in pieces]
    if deepest == 0 or all(parts == [piece] for piece, parts in zip(pieces, found, strict=True)):
        return pieces
    return _below([part for parts in found for part in parts], deepest - 1)


def _taken_apart(piece: Piece) -> list[Piece]:
    lines = [line for line in piece.text.splitlines() if line.strip()]
    for label in [each for each in _LABELS if lines and each.match(lines[0])]:
        if parts := _labelled(lines, label):
            return [
                Piece(
                    part.text,
                    piece.rank if part.rank == UNKNOWN_RANK else part.rank,
                    part.host or piece.host,
                )
                for part in parts
            ]
    return [piece]


def _server_page(text: str) -> Iterator[Piece]:
    for found in _SERVER_PAGE.finditer(text):
        _, _, body = found[3].partition("<pre>")
        stacks, closed, _ = body.partition("</pre>")
        stacks = stacks if closed else ""
        # torch's page is not escaped; a browser that saved it escapes it or closes "<module>"
        stacks = html.unescape(stacks.replace("</module>", ""))
        yield Piece(stacks, int(found[1]), _host(html.unescape(found[2])))


def _server_text(text: str) -> Iterator[Piece]:
    headings = list(_SERVER_TEXT.finditer(text))
    for index, heading in enumerate(headings):
        end = headings[index + 1].start() if index + 1 < len(headings) else len(text)
        yield Piece(text[heading.end() : end], int(heading[1]), _host(heading[2]))


def _host(address: str) -> str:
    """The host of "http://node01:1234" or "http://[::1]:1234"."""
    name = re.sub(r"^\w+://", "", address.strip())
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0].partition("/")[0]


def _labelled(lines: Sequence[str], label: re.Pattern[str]) -> list[Piece]:
    if len(lines) < 2 or not all(label.match(line) for line in lines[:_PROBE_LINES]):  # noqa: PLR2004 - one line proves nothing
        return []
    rests: dict[tuple[int, str, str], list[str]] = {}
    for line in lines:
        if found := label.match(line):
            fields = found.groupdict()
            rank = int(fields.get("rank") or UNKNOWN_RANK)
            key = rank, fields.get("host") or "", fields.get("who") or ""
            rests.setdefault(key, []).append(found["rest"])
    spaced = all(rest[:1] in ("", " ") for each in rests.values() for rest in each)
    first = 1 if spaced else 0  # some launchers put a space behind their label, some do not
    return [
        Piece("\n".join(rest[first:] for rest in each), rank, host)
        for (rank, host, _), each in sorted(rests.items())
    ]
