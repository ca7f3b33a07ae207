"""Reads what was pasted: each part by its own reader, all of them as one case.

A dump in JSON is no paste and is left to `unhang.ingest`; what is no text is refused. Nothing here
judges.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from unhang import ras
from unhang.case import Case
from unhang.casebuilder import case_of_logs
from unhang.errors import InputError
from unhang.logs.scan import is_text, scan_texts
from unhang.model import Note
from unhang.pasted.folders import MOST_BYTES
from unhang.pasted.slicing import INSPECTOR, LOG, RAS, STACKS, TextPart, cleaned, parts_of
from unhang.regular import open_regular, reason
from unhang.stacks.reading import is_stacks, parse_stacks
from unhang.wording import count_of

__all__ = ["MOST_BYTES", "Paste", "part_phrase", "paste_of", "read_pasted"]

_TOO_LARGE = f"is larger than {MOST_BYTES >> 20} MiB"


@dataclass(frozen=True, slots=True)
class Paste:
    """One text, and the cases that its parts make.

    Attributes:
        case: All of it.
        alone: By kind of part, the case that this part alone makes.
        places: By kind of part, where it is: its first and last lines, or its files.
    """

    case: Case
    alone: dict[str, Case] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    @property
    def holds_evidence(self) -> bool:
        """Whether there is more than text in which nothing shows a job."""
        return bool(self.case.samples or self.case.ras or self.case.logs_recognised)


def read_pasted(path: str) -> bytes:
    """The bytes of a file that is a text.

    Raises:
        InputError: It is not there, or too large.
    """
    try:
        # A FIFO would block for ever, unless the shell has it open already: <(py-spy dump …).
        held = path.startswith(("/dev/fd/", "/dev/stdin"))
        with Path(path).open("rb") if held else open_regular(Path(path)) as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason(error)}") from error
    if len(data) > MOST_BYTES:
        raise InputError(f"{path} {_TOO_LARGE}", f"Read it with: unhang logs {path}")
    return data


def paste_of(texts: Mapping[str, bytes], notes: Sequence[Note] = ()) -> Paste:
    """Read texts by the names of their sources.

    Args:
        texts: Each as it was pasted.
        notes: What is not among them, and why.

    Raises:
        InputError: One of them is empty or no text.
    """
    read = {name: _text(data, name) for name, data in texts.items()}
    parts = {name: _parts(text) for name, text in read.items()}
    alone = _alone(parts)
    if STACKS not in alone and any(_of(STACKS, each) for each in parts.values()):
        parts = {name: [*_as_log(_but(RAS, each)), *_of(RAS, each)] for name, each in parts.items()}
        alone = _alone(parts)
    if not alone:
        parts = {name: _as_log(each) for name, each in parts.items()}
        alone = {LOG: _case(parts)}
    places = {kind: _place(kind, parts) for kind in alone}
    whole = _together(alone)
    told = (*whole.notes, *notes, *_told(alone, places))
    return Paste(replace(whole, notes=told), alone, places)


def _parts(text: str) -> list[TextPart]:
    """The parts of a text; stacks as JSON are one part, and no page has changed them."""
    if text.lstrip()[:1] in ("{", "[") and is_stacks(text.encode()):
        return [TextPart(STACKS, text, ((1, text.count("\n") + 1),))]
    if ras.is_inspector(text):
        return [TextPart(INSPECTOR, text, ((1, text.count("\n") + 1),))]
    return parts_of(cleaned(text))


def _alone(parts: dict[str, list[TextPart]]) -> dict[str, Case]:
    """The case that the parts of each kind make, where they hold anything; prose is left out."""
    kinds = [
        kind
        for kind in (LOG, STACKS, RAS, INSPECTOR)
        if any(_of(kind, each) for each in parts.values())
    ]
    alone = {kind: _case({n: _of(kind, each) for n, each in parts.items()}) for kind in kinds}
    return _without_prose({kind: case for kind, case in alone.items() if _holds(case)})


def _as_log(parts: list[TextPart]) -> list[TextPart]:
    """All lines as a log: what looked like stacks is none that a reader knows."""
    columns = [part.text.split("\n") for part in parts] or [[""]]
    lines = [next(filter(None, same), "") for same in zip(*columns, strict=True)]
    return [TextPart(LOG, "\n".join(lines), ((1, len(lines)),))]


def _but(kind: str, parts: list[TextPart]) -> list[TextPart]:
    return [part for part in parts if part.kind != kind]


def _text(data: bytes, name: str) -> str:
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):  # as PowerShell's `>` writes it
        data = data.decode("utf-16", "replace").encode()
    if not data.strip():
        raise InputError(f"{name} is empty", "Paste logs, stacks or what ncclras printed.")
    if not is_text(data):
        hint = "Dumps and archives go to unhang diagnose, core files to unhang core."
        raise InputError(f"{name} is not text", hint)
    return data.decode("utf-8", "replace").removeprefix("\ufeff")


def _of(kind: str, parts: list[TextPart]) -> list[TextPart]:
    return [part for part in parts if part.kind == kind]


def _place(kind: str, parts: dict[str, list[TextPart]]) -> str:
    """Where the parts of a kind are: lines of one text, or the texts."""
    names = [Path(name).name for name, each in parts.items() if _of(kind, each)]
    if len(parts) > 1:
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return f"in {', '.join(names[:_MOST_NAMES])}{more}"
    found = (part for each in parts.values() for part in _of(kind, each))
    return _lines(tuple(span for part in found for span in part.spans))


def _holds(case: Case) -> bool:
    return bool(case.samples or case.ras or case.log_events or case.logs_recognised is not None)


def _case(parts: dict[str, list[TextPart]]) -> Case:
    """The case that the parts of one kind make; logs of one job are read as one."""
    logs = {name: p.text.encode() for name, each in parts.items() for p in _of(LOG, each)}
    case = case_of_logs(scan_texts(logs)) if logs else Case()
    if any(_of(INSPECTOR, each) for each in parts.values()):  # one file a process
        counted = [p.text for each in parts.values() for p in _of(INSPECTOR, each)]
        case = _joined(case, _of_inspector("\n".join(counted)))
    for name, each in parts.items():
        for part in each:
            if part.kind in _READERS:
                case = _joined(case, _READERS[part.kind](part.text.encode(), name))
    return case


def _of_stacks(data: bytes, name: str) -> Case:
    reading = parse_stacks(data, name)
    return Case(samples=reading.samples, notes=reading.notes)


def _of_ras(data: bytes, name: str) -> Case:
    try:
        return Case(ras=(ras.parse(data.decode()),))
    except ValueError as error:
        return Case(notes=(Note("warning", name, f"not read as NCCL's RAS: {error}"),))


def _of_inspector(text: str) -> Case:
    try:
        return Case(ras=(ras.parse_inspector(text),))
    except ValueError as error:
        return Case(notes=(Note("warning", "paste", f"not read: {error}"),))


_READERS = {STACKS: _of_stacks, RAS: _of_ras}


def _without_prose(alone: dict[str, Case]) -> dict[str, Case]:
    """Without what surrounds stacks or RAS and is no log: what people write about them."""
    prose = len(alone) > 1 and LOG in alone and not alone[LOG].logs_recognised
    return {kind: case for kind, case in alone.items() if not (prose and kind == LOG)}


def _together(alone: dict[str, Case]) -> Case:
    whole = Case()
    for case in alone.values():
        whole = _joined(whole, case)
    return whole


def _joined(one: Case, other: Case) -> Case:
    known = [each for each in (one.logs_recognised, other.logs_recognised) if each is not None]
    return replace(
        one,
        samples=one.samples + other.samples,
        log_events=one.log_events + other.log_events,
        log_facts=one.log_facts + other.log_facts,
        log_ranks=tuple(sorted({*one.log_ranks, *other.log_ranks})),
        logs_recognised=any(known) if known else None,
        logs_got_on=one.logs_got_on or other.logs_got_on,
        logs_left_open=one.logs_left_open or other.logs_left_open,
        ras=one.ras + other.ras,
        notes=one.notes + other.notes,
    )


_MOST_SPANS, _MOST_NAMES = 6, 4


def _told(alone: dict[str, Case], places: dict[str, str]) -> list[Note]:
    """What was found where."""
    return [Note("info", "paste", f"{_what(k, case)}, {places[k]}") for k, case in alone.items()]


def part_phrase(paste: Paste, kind: str) -> str:
    """A part as a sentence names it: "the stacks of 3 processes (gdb), lines 12-80"."""
    return f"the {_what(kind, paste.alone[kind])}, {paste.places[kind]}"


def _what(kind: str, case: Case) -> str:
    if kind == STACKS:
        tools = ", ".join(sorted({sample.tool for sample in case.samples if sample.tool}))
        return f"stacks of {count_of(len(case.samples), 'process', 'processes')} ({tools})"
    if kind == INSPECTOR:
        return "calls that NCCL Inspector recorded"
    if kind == RAS:
        return "answer of NCCL's RAS"
    return f"log with {count_of(len(case.log_events), 'known message')}"


def _lines(spans: tuple[tuple[int, int], ...]) -> str:
    shown = [f"{first}" if first == last else f"{first}-{last}" for first, last in spans]
    more = f" and {len(spans) - _MOST_SPANS} more" if len(spans) > _MOST_SPANS else ""
    word = "line" if shown == [str(spans[0][0])] else "lines"
    return f"{word} {', '.join(shown[:_MOST_SPANS])}{more}"
