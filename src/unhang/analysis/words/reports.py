"""Words for what other commands found, by whom and when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from msgspec.structs import replace

from unhang.analysis.claims import Claim, Weighed
from unhang.analysis.lives.told import OfCulprits, OnTheWay, ToldBeside
from unhang.analysis.rules.telling import Words, adding_for, merged, words_for
from unhang.analysis.sources.reports import Reported, Told
from unhang.model import Note
from unhang.wording import count_of, printable, rank_phrase

__all__ = ["notes_on"]

_MOST_SENTENCES = 4


def notes_on(reports: Sequence[Reported], left_out: int) -> Iterator[Note]:
    """What is not told of other commands' reports.

    Args:
        reports: All of them.
        left_out: How many of the findings that their verdicts rest on are left out.
    """
    for each in reports:
        source, saved = printable(each.saved.source), each.saved
        if not each.chosen:
            yield Note("info", source, f"{_by(each)}: {saved.summary or 'nothing wrong was found'}")
        elif left := len(saved.findings) - len(each.chosen):
            text = f"{count_of(left, 'finding')} on which its verdict does not rest left out"
            yield Note("info", source, text)
    if left_out:
        text = f"{left_out} further findings of other commands are left out"
        yield Note("info", "reports", text)


def _by(each: Reported) -> str:
    """By whom and when, as seen from the evidence."""
    saved = each.saved
    by = f"By {saved.command or printable(saved.source, 60)}"
    if not saved.time_ns:
        return f"{by}, it is not known when"
    if each.since_ns is None:
        when = datetime.fromtimestamp(saved.time_ns / 1e9, tz=timezone.utc)
        return f"{by} at {when:%Y-%m-%d %H:%M:%S} UTC"
    what = "the newest evidence" if each.evidence == "evidence" else "the last recorded call"
    side = "after" if each.since_ns >= 0 else "before"
    return f"{by}, {_length(abs(each.since_ns) / 1e9)} {side} {what}"


def _length(seconds: float) -> str:
    for unit, name in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


def _sentence(told: Told) -> str:
    return f"{_by(told.by)}: {told.finding.summary}"


@adding_for(OfCulprits)
def _adding_of_culprits(told: OfCulprits, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001
    where = "; ".join(
        f"{rank_phrase(there)} {'is' if len(there) == 1 else 'are'} on {printable(host, 60)}"
        for host, there in told.on
    )
    said = _sentence(told) + (f" ({where})" if where else "")
    actions = merged(words.actions, told.finding.actions)
    return replace(words, evidence=(*words.evidence, said), actions=actions)


@adding_for(OnTheWay)
def _adding_on_the_way(told: OnTheWay, words: Words, claim: Claim, weighed: Weighed) -> Words:  # noqa: ARG001
    names = " and ".join(printable(host, 60) for host in told.hosts)
    said = f"Possible. {_sentence(told)} The ranks in this call are all on {names}."
    return replace(words, alternatives=(said, *(words.alternatives or ())))


@words_for(ToldBeside)
def _verdict_of_told_beside(about: ToldBeside, claim: Claim) -> Words:  # noqa: ARG001 - as all words
    found = about.told.finding
    source = printable(about.told.by.saved.source)
    return Words(
        _sentence(about.told),
        (*found.evidence[:_MOST_SENTENCES], f"From {source}."),
        found.alternatives,
        found.actions,
    )
