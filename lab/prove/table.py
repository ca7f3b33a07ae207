"""The result of a proof as a section of docs/accuracy.md, and single wrong verdicts for people."""

from __future__ import annotations

from collections import Counter
from typing import Final

from lab.prove.endstates import Entry
from lab.prove.sweep import Fault
from unhang.analysis.shared.claims import confidence_of

HEADING: Final = "## Every small program with every single mistake"

_INTRO: Final = """\
Written by `make prove`. Programs of two to four ranks, up to three kinds of groups (meshes among
them) and steps of one to six calls: collectives of two kinds, sends and receives. Hosts wait for
each call, run ahead of one queue, or of a queue for each group; the step is repeated before and
after. The simulator runs each to its end without a mistake and with every single one. A mistake is
a call left out, made once more, swapped with the next, of another kind or size, or a rank that
stops or ends there. All steps of one and two calls are run in all variants, those of three calls in
one of nine in turn; longer ones are drawn by lot. What differs in rank names only is run once.

A rank is *innocent* only if no program of any length ends in these dumps by one mistake of it: that
is searched for. Of a hang whose dumps tell two stories, naming one of those whom they allow is
counted by itself. *Determined* are those that leave one rank only."""

_ROWS: Final = (
    ("programs", "programs"),
    ("end states", "different end states, each judged once"),
    ("hangs", "hangs"),
    ("false sentence", "sentences that contradict the dumps"),
    ("false alarm", "a problem where no rank waits"),
    ("missed", "a hang without a problem"),
    ("innocent", "innocent ranks with high or medium confidence"),
    ("wrong name", "innocent ranks with any confidence"),
    ("named", "the rank that made the mistake named, and no other"),
    ("not named", "determined, and no rank named"),
    ("one of several", "one named of several whom the dumps allow"),
    ("not to be known", "no rank named, and the dumps allow several"),
    ("one dump alone", "no rank named, for there is one dump alone"),
)


def as_markdown(counts: Counter[str], every: int = 1, parts: tuple[int, int] | None = None) -> str:
    """The section.

    Args:
        counts: Of programs, by what came of them.
        every: Only one of so many steps was taken.
        parts: How many parts of the plan were judged, and how many there are.
    """
    rows = [f"| {words} | {counts[key]:,} |" for key, words in _ROWS]
    table = "\n".join(["|  |  |", "|---|---|", *rows, f"| F1 where determined | {_f1(counts)} |"])
    part = f"**A sample: one of {every} of these steps.**\n\n" if every > 1 else ""
    if parts is not None and parts[0] < parts[1]:
        part += f"**{parts[0]} of {parts[1]} parts, drawn by lot.**\n\n"
    return f"{HEADING}\n\n{_INTRO}\n\n{part}{table}\n"


def _f1(counts: Counter[str]) -> str:
    right, wrong, none = (counts[key] for key in ("named", "wrong name", "not named"))
    return f"{2 * right / max(2 * right + 2 * wrong + none, 1):.4f}"


def described(fault: Fault) -> str:
    """One wrong verdict, with the dumps that led to it."""
    program = fault.program
    lines = [
        f"{fault.what} {fault.detail}: {fault.deviation}",
        f"  {program.shape} {program.mode} {program.before}+1+{program.after}",
    ]
    for rank, entries in enumerate(fault.state):
        shown = "no dump" if entries is None else " ".join(map(_entry, entries))
        lines.append(f"  {rank}: {shown}")
    blame = (
        f"  -> {claim.kind.code} {claim.culprits} {confidence_of(claim)}"
        for claim in fault.verdict.causes
    )
    return "\n".join((*lines, *blame))


def _entry(entry: Entry) -> str:
    group, op, size, peer, line, seq, p2p_seq, finished = entry
    number = f">{peer}#{p2p_seq}" if peer >= 0 else f"#{seq}"
    return f"{op}@{group}{number}:{line}{'' if finished else '*'}{'' if size == 4 else '!'}"  # noqa: PLR2004
