"""One file, many ranks: takes apart what launchers and servers put into one text.

`srun --label`, `mpirun --tag-output` and torchrun's log lines say in front of every line whose it
is; torch's debug server writes one page with a heading a rank. What is left is the text of one
process each, for the formats to read. It refuses to guess: a label counts only if all lines have
it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

from unhang.model import UNKNOWN_RANK

__all__ = ["Piece", "split"]


class Piece(NamedTuple):
    """The part of a text that belongs to one rank or host, as far as the text says it."""

    text: str
    rank: int = UNKNOWN_RANK
    host: str = ""


_SERVER_TEXT = re.compile(r"^=== Rank (\d+): (.*?) ===$", re.MULTILINE)
_SERVER_PAGE = re.compile(r"<h2>Rank (\d+): (.*?)</h2>(.*?)(?=<h2>Rank |\Z)", re.DOTALL)
_PRE = re.compile(r"<pre>(.*?)</pre>", re.DOTALL)
_LABELS = (
    re.compile(r"^ *(?P<rank>\d+): ?(?P<rest>.*)$"),  # srun --label
    re.compile(r"^\[\d+,(?P<rank>\d+)\]<std\w+>: ?(?P<rest>.*)$"),  # mpirun --tag-output
    re.compile(r"^\[rank(?P<rank>\d+)\]: ?(?P<rest>.*)$"),  # torch's own log lines
    re.compile(r"^(?P<host>[A-Za-z][\w.-]*): ?(?P<rest>.*)$"),  # pdsh, clush
)
_PROBE_LINES = 200


def split(text: str) -> list[Piece]:
    """The pieces of a text; the whole text as one piece where nothing is labelled."""
    if pieces := list(_server_page(text)) or list(_server_text(text)):
        return pieces
    for label in _LABELS:
        if pieces := _labelled(text, label):
            return pieces
    return [Piece(text)]


def _server_page(text: str) -> Iterator[Piece]:
    for found in _SERVER_PAGE.finditer(text):
        body = _PRE.search(found[3])
        stacks = body[1] if body else ""
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


def _labelled(text: str, label: re.Pattern[str]) -> list[Piece]:
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2 or not all(label.match(line) for line in lines[:_PROBE_LINES]):  # noqa: PLR2004 - one line proves nothing
        return []
    rests: dict[tuple[int, str], list[str]] = {}
    for line in lines:
        if found := label.match(line):
            fields = found.groupdict()
            key = int(fields.get("rank") or UNKNOWN_RANK), fields.get("host") or ""
            rests.setdefault(key, []).append(found["rest"])
    return [Piece("\n".join(rest), rank, host) for (rank, host), rest in sorted(rests.items())]
