"""Making eight thousand ranks fit where eight do: tables and lists folded, nothing lost silently.

What says the same becomes one row with its ranks as ranges; what does not fit is counted.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from unhang.model import Note
from unhang.report import Finding, RankStatus
from unhang.wording import count_of, fold_ranks, printable, rank_phrase

MAX_ROWS_OF_A_STATUS = 4
MAX_REST = 8
MAX_CAUSE_LINES = 8
MAX_NOTES = 6
MAX_SOURCES = 3

_STATUS_ORDER = (
    "culprit",
    "silent",
    "unreadable",
    "ahead",
    "behind",
    "waiting",
    "unknown",
    "idle",
    "ok",
)
_NUMBER = re.compile(r"\d+")
_LEVEL_ORDER = ("error", "warning", "info")


class RankRow(NamedTuple):
    """Ranks of one status that say the same of themselves."""

    status: str
    ranks: str
    number: int
    text: str


def fold_rank_table(ranks: Iterable[RankStatus]) -> tuple[RankRow, ...]:
    """Fold the table of ranks: the odd ones first, at most a few rows for each status."""
    folded: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for entry in ranks:
        folded[entry.status][entry.detail or entry.head].append(entry.rank)
    order = {status: place for place, status in enumerate(_STATUS_ORDER)}
    rows: list[RankRow] = []
    for status in sorted(folded, key=lambda name: order.get(name, len(order))):
        rows.extend(_rows_of_status(status, folded[status]))
    return tuple(rows)


def _rows_of_status(status: str, texts: dict[str, list[int]]) -> Iterable[RankRow]:
    """Rows of one status, the most frequent text first; what is left over shares the last row."""
    if len(texts) > MAX_ROWS_OF_A_STATUS:
        texts = _by_pattern(texts)
    ordered = sorted(texts.items(), key=lambda item: (-len(item[1]), min(item[1])))
    shown = ordered if len(ordered) <= MAX_ROWS_OF_A_STATUS else ordered[: MAX_ROWS_OF_A_STATUS - 1]
    for text, members in shown:
        yield RankRow(status, fold_ranks(members, spoken=True), len(members), printable(text, 160))
    rest = [rank for _, members in ordered[len(shown) :] for rank in members]
    if rest:
        text = f"{len(ordered) - len(shown):,} other states"
        yield RankRow(status, fold_ranks(rest, spoken=True), len(rest), text)


def _by_pattern(texts: dict[str, list[int]]) -> dict[str, list[int]]:
    """Join texts that differ in their numbers only: "in all_reduce #* of tp * (64 different)"."""
    joined: dict[str, list[str]] = defaultdict(list)
    for text in texts:
        joined[_NUMBER.sub("*", text)].append(text)
    return {
        same[0] if len(same) == 1 else f"{pattern} ({len(same):,} different)": [
            rank for text in same for rank in texts[text]
        ]
        for pattern, same in joined.items()
    }


def cause_lines(causes: Sequence[Finding]) -> tuple[str, ...]:
    """A line for each cause, so that none hides behind another one; the last may name the rest."""
    shown = causes if len(causes) <= MAX_CAUSE_LINES + 1 else causes[:MAX_CAUSE_LINES]
    lines = [
        f"{printable(f.summary)} ({f.code} {f.slug}, {f.confidence} confidence)" for f in shown
    ]
    if rest := causes[len(shown) :]:
        ranks = sorted({rank for f in rest for rank in f.culprits})
        names = f", of {rank_phrase(ranks)}" if ranks else ""
        lines.append(f"and {count_of(len(rest), 'more cause')}{names}")
    return tuple(lines)


def fold_rest(findings: Sequence[Finding]) -> tuple[str, ...]:
    """One line for each kind of finding that is not told in full."""
    kinds: dict[tuple[str, str, tuple[str, ...]], list[Finding]] = defaultdict(list)
    for finding in findings:
        key = finding.caused_by if finding.role == "consequence" else ()
        kinds[finding.role, finding.code, key].append(finding)
    lines = [_kind_line(role, same) for (role, _, _), same in kinds.items()]
    if len(lines) <= MAX_REST:
        return tuple(lines)
    return (*lines[:MAX_REST], f"and {count_of(len(lines) - MAX_REST, 'more kind')} of finding")


def _kind_line(role: str, same: Sequence[Finding]) -> str:
    first = same[0]
    line = f"{role}: {first.code} {first.slug}: {printable(first.summary)}"
    if first.caused_by:
        line += f" (because of {', '.join(printable(cause) for cause in first.caused_by[:5])})"
    if len(same) > 1:
        ranks = sorted({r for f in same[1:] for r in f.culprits or f.victims})
        line += f" And {len(same) - 1:,} like it" + (f" ({rank_phrase(ranks)})." if ranks else ".")
    return line


def fold_notes(notes: Iterable[Note]) -> tuple[tuple[str, str], ...]:
    """Fold notes that say the same, but for numbers; the gravest first, as (level, text)."""
    folded: dict[tuple[str, str], dict[Note, None]] = defaultdict(dict)
    for note in notes:
        folded[note.level, _NUMBER.sub("*", note.text)][note] = None
    ordered = sorted(folded.items(), key=lambda item: _level_place(item[0][0]))
    lines = [(level, _note_line(tuple(same))) for (level, _), same in ordered]
    if len(lines) <= MAX_NOTES + 1:
        return tuple(lines)
    rest = count_of(len(lines) - MAX_NOTES, "more note")
    return (*lines[:MAX_NOTES], ("info", f"and {rest} (all of them: --format json)"))


def _level_place(level: str) -> int:
    return _LEVEL_ORDER.index(level) if level in _LEVEL_ORDER else len(_LEVEL_ORDER)


def _note_line(notes: Sequence[Note]) -> str:
    """One line for notes of one pattern: all sources where the text is one, else the first note."""
    first = printable(notes[0].text)
    sources = list(dict.fromkeys(note.source for note in notes if note.source))
    if len({note.text for note in notes}) > 1:
        more = f" (and {len(notes) - 1:,} more like it)"
        return f"{printable(sources[0], 60)}: {first}{more}" if sources else first + more
    names = [printable(source, 60) for source in sources[:MAX_SOURCES]]
    if len(sources) > MAX_SOURCES:
        names.append(f"and {len(sources) - MAX_SOURCES:,} more")
    return f"{', '.join(names)}: {first}" if names else first
