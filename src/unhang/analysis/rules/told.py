"""Weigh what other commands found: `doctor`, `trace --syscalls`, `numerics` and others.

It stands next to the verdict and never becomes its cause: a node that is bad, or a process that
waits, explains a hang only if the dumps point there too. So a finding about a culprit's own
process, GPU or host supports that claim; one about the only way between the ranks of a stuck call
is a possible explanation; all else is an observation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Final

from msgspec.structs import replace

from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.rule import ANY, Observer, Rule, When
from unhang.analysis.rules.telling import Words, adding_for, merged, words_for
from unhang.analysis.shared.claims import Bearing, Claim, Doubt, Observation, Seeing, Weighed
from unhang.analysis.sources.nodes import Nodes, hosts_named
from unhang.analysis.sources.reports import Reported, Told
from unhang.kinds import Trait
from unhang.model import Note
from unhang.report import Subject
from unhang.wording import count_of, printable, rank_phrase

_MOST_TOLD: Final = 32
_MOST_WEIGHED: Final = 4
_MOST_SENTENCES = 4
_DOUBTS: Final = {"high": (), "medium": (Doubt.HALF_SURE,), "low": (Doubt.NOT_SURE,)}


class OfCulprits(Told, frozen=True, kw_only=True):
    """It is about culprits; `on` are those that are named by their host alone, by host."""

    on: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def is_same(self, other: Observation) -> bool:
        """Whether the other one is of the same finding."""
        return isinstance(other, Told) and other.finding is self.finding


class OnTheWay(Told, frozen=True, kw_only=True):
    """Nothing passes between the ranks of a call, on `hosts`, but over what it is about."""

    hosts: tuple[str, ...] = ()


# ------------------------------------------------------------------ of a culprit


def _is_about(told: Told, claim: Claim, nodes: Nodes) -> bool:
    """Whether it is about a culprit, and not about all that wait as well."""
    about = {rank for subject in told.finding.subjects for rank in nodes.ranks_of(subject)}
    everybody = bool(claim.victims) and set(claim.victims) <= about
    return bool(about & set(claim.culprits)) and not everybody


def _about_culprits(claim: Claim, facts: CaseFacts) -> Iterator[Seeing]:
    nodes = facts.lives.nodes
    told = [each for each in facts.lives.told if _is_about(each, claim, nodes)]
    confirmed = any(_confirms(each, claim, nodes) for each in told)
    for each in told[:_MOST_WEIGHED]:
        bearing = Bearing.CHECK_AGREES if confirmed else Bearing.ABOUT_CULPRIT
        yield _of_culprits(each, claim, nodes), bearing


def _of_culprits(told: Told, claim: Claim, nodes: Nodes) -> OfCulprits:
    hosts = {
        nodes.known_as(subject.host or "")
        for subject in told.finding.subjects
        if subject.kind in ("host", "gpu")
    }
    on = (
        (host, tuple(rank for rank in claim.culprits if nodes.host_of.get(rank) == host))
        for host in sorted(hosts - {""})
    )
    return OfCulprits(
        source="reports",
        finding=told.finding,
        by=told.by,
        on=tuple((host, there) for host, there in on if there),
    )


def _confirms(told: Told, claim: Claim, nodes: Nodes) -> bool:
    """Whether a check names the same rank independently: that of the dumps, and no other."""
    accused = [subject for subject in told.finding.subjects if subject.role == "culprit"]
    return (
        told.is_check
        and told.is_fresh
        and told.finding.confidence != "low"
        and claim.kind.has(Trait.FROM_BAD_NODE)
        and {nodes.names(subject) for subject in accused} == set(claim.culprits)
    )


# ------------------------------------------------------------------ of the way between ranks


def _on_the_way(claim: Claim, facts: CaseFacts) -> Iterator[Seeing]:
    """Checks that failed on the only way between the ranks of a claim that names none."""
    if claim.culprits:
        return
    lives = facts.lives
    inside = {rank for side in claim.calls for rank in side.ranks} or lives.in_calls
    hosts = lives.nodes.hosts_of(inside)
    on_it = [t for t in lives.told if _is_on_the_way(t, inside, hosts, lives.nodes)]
    for each in reversed(on_it[:_MOST_WEIGHED]):  # each comes before what is there already
        way = OnTheWay(
            source="reports", finding=each.finding, by=each.by, hosts=tuple(sorted(hosts))
        )
        yield way, Bearing.ON_THE_WAY


def _is_on_the_way(
    told: Told, inside: frozenset[int] | set[int], hosts: frozenset[str], nodes: Nodes
) -> bool:
    if not (told.is_check and told.kind.has(Trait.ON_THE_WAY)):
        return False
    return any(_covers(subject, inside, hosts, nodes) for subject in told.finding.subjects)


def _covers(
    subject: Subject, inside: frozenset[int] | set[int], hosts: frozenset[str], nodes: Nodes
) -> bool:
    named = {nodes.known_as(host) for host in hosts_named(subject)}
    if not named or not named <= hosts:
        return False
    if subject.kind == "link":
        return named == hosts
    is_used = subject.kind != "gpu" or bool(set(inside) & set(nodes.ranks_of(subject)))
    return is_used and len(hosts - named) <= 1


# ------------------------------------------------------------------ next to the verdict


def _shown(told: Told, nodes: Nodes) -> Claim:
    """About hosts and processes, and about no rank's guilt.

    Rank numbers of the other command stay only where its host shows that they are this job's.
    """
    return Claim(
        kind=told.kind,
        rests_on="reports",
        about=told,
        role="observation",
        subjects=tuple(dataclasses.replace(s, rank=nodes.names(s)) for s in told.finding.subjects),
        doubts=_DOUBTS[told.finding.confidence],
    )


RULE: Final = Rule(
    tells=lambda facts: (_shown(t, facts.lives.nodes) for t in facts.lives.told[:_MOST_TOLD]),
    when=When.REPORTS,
    observers=(
        Observer(sees=_about_culprits),
        Observer(sees=_on_the_way, roles=ANY, traits=Trait.OPEN),
    ),
)


# ------------------------------------------------------------------ words


def notes_on(reports: Sequence[Reported]) -> Iterator[Note]:
    """What is not told of other commands' reports."""
    left_out = sum(len(each.chosen) for each in reports) - _MOST_TOLD
    for each in reports:
        source, saved = printable(each.saved.source), each.saved
        if not each.chosen:
            yield Note("info", source, f"{_by(each)}: {saved.summary or 'nothing wrong was found'}")
        elif left := len(saved.findings) - len(each.chosen):
            are = "is" if left == 1 else "are"
            text = f"{count_of(left, 'finding')} on which its verdict does not rest {are} left out"
            yield Note("info", source, text)
    if left_out > 0:
        are = "is" if left_out == 1 else "are"
        text = f"{count_of(left_out, 'further finding')} of other commands {are} left out"
        yield Note("info", "reports", text)


def _by(each: Reported) -> str:
    """By whom and when, as seen from the evidence."""
    saved = each.saved
    by = f"By {saved.command or printable(saved.source, 60)}"
    if not saved.time_ns:
        return f"{by}, at an unknown time"
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
    said = f"Possibly: {_sentence(told)} The ranks in this call are all on {names}."
    return replace(words, alternatives=(said, *(words.alternatives or ())))


@words_for(Told)
def _verdict_of_told(about: Told, claim: Claim) -> Words:  # noqa: ARG001 - as all words
    found = about.finding
    source = printable(about.by.saved.source)
    return Words(
        _sentence(about),
        (*found.evidence[:_MOST_SENTENCES], f"From {source}."),
        found.alternatives,
        found.actions,
    )
