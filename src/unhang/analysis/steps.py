"""From a case to a report: the steps of docs/how-it-works.md, one after the other.

Evidence, standing, heads, agreement, waiting, roots; then a claim for each root. This module only
puts the steps in order and counts; every judgement is made in the module that it belongs to.
"""

from __future__ import annotations

import dataclasses
from collections import ChainMap
from collections.abc import Sequence
from functools import partial

import numpy as np
from msgspec.structs import replace

from unhang.analysis.decision import decide
from unhang.analysis.judgement import (
    Backdrop,
    judge,
    most_telling_first,
    settle,
    status_of,
)
from unhang.analysis.linking import linked, told_instead, with_first
from unhang.analysis.lives.blind import blind_in
from unhang.analysis.lives.life import Lives, lives_of
from unhang.analysis.matching.collectives import disagreements, rows_at_waiting_calls
from unhang.analysis.matching.pairs import pair_edges, pair_links, pair_up
from unhang.analysis.matching.unproven_ends import with_unproven_ends
from unhang.analysis.matching.unseen_ends import with_unseen_ends
from unhang.analysis.matching.wait_graph import collective_edges, make_graph
from unhang.analysis.rank_table import rank_table
from unhang.analysis.rules.before_groups import before_groups
from unhang.analysis.rules.case_facts import CaseFacts
from unhang.analysis.rules.causes import claims_of
from unhang.analysis.rules.first_failure import failures
from unhang.analysis.rules.groups_apart import groups_apart
from unhang.analysis.rules.last_traced_call import stacks_heard
from unhang.analysis.rules.late_rank import late_claims
from unhang.analysis.rules.order import asked, weighed
from unhang.analysis.rules.rank_ended import ended, notes_on_kills
from unhang.analysis.rules.rule import When
from unhang.analysis.rules.said_beside import besides
from unhang.analysis.rules.silent_rank import notes_on_nodes
from unhang.analysis.rules.sizes_apart import ended_for_calls, sizes_apart
from unhang.analysis.rules.told import notes_on
from unhang.analysis.shared.claims import Claim
from unhang.analysis.shared.sites import StackBook
from unhang.analysis.shared.situation import Situation
from unhang.analysis.sources.ras import ras_of
from unhang.analysis.sources.shortages import shortages
from unhang.analysis.state.heads import find_heads, unlaunched_ranks
from unhang.analysis.state.index import Evidence, gather
from unhang.analysis.state.progress import stand
from unhang.analysis.state.split_groups import split_groups
from unhang.analysis.state.stale import same_moment
from unhang.analysis.words import quiet
from unhang.case import BY_LAST_CALLS, Case
from unhang.model import Note
from unhang.report import Incident, Job, Report, Status
from unhang.spans import distinct
from unhang.wording import rank_phrase

_MOST_WHOLE = 1 << 14
"""Ranks whose calls are all looked at, where there are windows only."""


def diagnose(case: Case, *, slow: bool = False) -> Report:
    """Find out why the job of this case does not move.

    Args:
        case: What was read; nothing in it is trusted to be complete.
        slow: Rank late arrivals even if something is stuck.

    Returns:
        The verdict. The same case gives the same report, in whatever order its dumps stand.

    Raises:
        TypeError: It is no case, but the paths of one, say.
    """
    given: object = case
    if not isinstance(given, Case):
        kind = type(given).__name__
        raise TypeError(f"diagnose takes a Case, not {kind}: unhang.diagnose(unhang.load(paths))")
    lives = lives_of(case)
    with_dumps = bool(case.dumps) or not _tells_something(case, lives)
    found = _of_dumps(case, lives, slow=slow) if with_dumps else _of_others(case, lives)
    claims, facts, backdrop = found
    lives, says = facts.lives, facts.ras
    said, told = lives.said, failures(lives.said)
    claims = asked(with_first(claims, told), facts, When.LOGS)
    claims = asked([*claims, *besides(said, claims)], facts, When.OTHERS)
    claims = weighed(linked(claims), facts)
    status, summary = status_of(claims), ""
    if not with_dumps and not lives.sampled and not says:
        status, summary = _nothing_found(case, lives, claims)
    claims = most_telling_first(asked(claims, facts, When.REPORTS))
    beside = (
        *notes_on(lives.reports),
        *notes_on_kills(case.samples),
        *notes_on_nodes(case.nodes),
    )
    notes = (*backdrop.notes, *beside)
    stacks = ChainMap(backdrop.stacks, stacks_heard(lives))
    backdrop = replace(backdrop, status=status, summary=summary, notes=notes, stacks=stacks)
    report = judge(claims, backdrop)
    return dataclasses.replace(report, decision=decide(claims, status, lives), nodes=case.nodes)


def _tells_something(case: Case, lives: Lives) -> bool:
    """Whether there is anything next to dumps to judge."""
    seen = lives.sampled or lives.launchers or lives.said.events or lives.heard or lives.reports
    return bool(seen or case.samples or case.ras) or case.logs_recognised is not None


def _of_others(case: Case, lives: Lives) -> tuple[list[Claim], CaseFacts, Backdrop]:
    """What stacks, heartbeats and ends of processes show by themselves."""
    says, book = ras_of(case.ras, case.world_size), StackBook(case)
    facts = CaseFacts(case, lives, book, ras=says, short=shortages(case.samples))
    backdrop = _backdrop(case, lives, book)
    if says is not None:
        size = max(backdrop.job.world_size, says.n_ranks)
        backdrop = replace(backdrop, job=dataclasses.replace(backdrop.job, world_size=size))
    return _beside_calls([], facts), facts, backdrop


def _backdrop(case: Case, lives: Lives, book: StackBook) -> Backdrop:
    """Job, incident, ranks and stacks as stacks, logs and traces tell of them."""
    return Backdrop(
        job=Job(
            world_size=max(lives.world_size, len(lives.ranks)),
            ranks_seen=sum(life.is_seen for life in lives.ranks.values()),
        ),
        incident=Incident(id=case.incident, newest_ns=case.newest_ns),
        table=partial(rank_table, lives, book, None),
        stacks=book.used,
        notes=(*case.notes, *quiet.went_on(lives.said.events)),
    )


def _nothing_found(case: Case, lives: Lives, claims: Sequence[Claim]) -> tuple[Status, str]:
    """Status of a case without dumps or stacks, and its one sentence where no claim has it.

    "healthy" means that this is the log of a job that did some work, in which nothing marks itself
    as an error, or the job went on after it, and that all could be read. Or that every traced call
    has ended.
    """
    status = status_of(claims)
    if status == "insufficient":
        return status, quiet.silent_traces(claims[0])
    if status != "healthy":
        return status, ""
    if any(heard.call.open_calls for heard in lives.heard):
        return "insufficient", quiet.quiet_traces(lives)
    if lives.said.events or case.logs_recognised is not None:
        return _quiet_logs(case, lives)
    if lives.heard:
        return status, quiet.quiet_traces(lives)
    return "insufficient", quiet.ONLY_TOLD


def _quiet_logs(case: Case, lives: Lives) -> tuple[Status, str]:
    unread = next((note for note in case.notes if note.level == "error"), None)
    if unread is not None:
        return "insufficient", quiet.lost(unread)
    if case.logs_recognised is False:
        return "insufficient", quiet.STRANGE
    if not case.logs_got_on:
        return "insufficient", quiet.A_START
    if case.logs_left_open:
        return "insufficient", quiet.LEFT_OPEN
    return "healthy", quiet.quiet_logs(lives.said.events)


def _of_dumps(case: Case, lives: Lives, *, slow: bool) -> tuple[list[Claim], CaseFacts, Backdrop]:
    """What dumps show, and what stacks and ends of processes add to it."""
    situation, found, notes = _claimed(case, lives)
    # Made because a rank was slow, while calls went on finishing: what is in flight is not stuck.
    moving = bool(case.dumps) and all(dump.reason == "slow" for dump in case.dumps)
    lives = replace(lives, in_calls=situation.in_calls)
    facts = CaseFacts(
        case,
        lives,
        situation.book,
        situation,
        ras_of(case.ras, case.world_size),
        shortages(case.samples),
        moving=moving,
        eager=slow or moving,
        blind=blind_in(case, lives),
    )
    claims, cut = settle([] if moving else found)
    claims = _beside_calls(claims, facts)
    unseen = situation.silent.any() or situation.cut.any()
    untimed: tuple[int, ...] = ()
    if facts.eager or not (claims or unseen):
        untimed = situation.untimed
        claims += [] if untimed else late_claims(situation, eager=facts.eager)
    blind = facts.blind.ranks if facts.blind is not None else ()
    claims = asked(claims, facts, When.CALLS)
    backdrop = Backdrop(
        job=_job(situation.evidence),
        incident=_incident(case),
        table=partial(rank_table, lives, situation.book, situation, blind=blind),
        stacks=situation.book.used,
        notes=(*case.notes, *notes, *cut, *_untimed_notes(untimed)),
    )
    return claims, facts, backdrop


def _beside_calls(claims: list[Claim], facts: CaseFacts) -> list[Claim]:
    """The claims about calls, with what stacks, heartbeats and ends of processes show.

    Args:
        claims: From dumps; none where there are none.
        facts: What other sources show.
    """
    lives, book = facts.lives, facts.book
    early = before_groups(lives, book)
    claims = [*early, *(c for c in claims if c.kind not in {each.kind for each in early})]
    claims = asked(claims, facts, When.STACKS)
    ends = facts.ends
    claims = weighed(claims, facts, early=True)
    found = (
        *groups_apart(lives, book, facts.case),
        *sizes_apart(ends, lives, book, facts.situation),
        *ended(ends, facts.missed, lives, book),
    )
    return linked(told_instead([*found, *claims]), *ended_for_calls(ends, lives))


def _claimed(case: Case, lives: Lives) -> tuple[Situation, list[Claim], tuple[Note, ...]]:
    """The claims of a case, with all calls of the ranks that the rules ask about."""
    whole: set[int] = set()
    while True:
        situation, notes = situation_of(case)
        claims = claims_of(situation, lives)
        new = situation.asked - whole
        if not new or case.more is None or len(whole) > _MOST_WHOLE:
            break
        whole |= new
        more = case.more(whole)
        if more is None:
            break
        case = more
    if not new:
        return situation, claims, notes
    text = (
        f"The calls of {rank_phrase(sorted(new))} before the last ones were not compared with "
        "their peers': too many at once for one verdict."
    )
    return situation, claims, (*notes, Note("warning", "parts", text))


def _untimed_notes(ranks: tuple[int, ...]) -> tuple[Note, ...]:
    if not ranks:
        return ()
    text = (
        f"Who is slow was not looked at: the parts of {rank_phrase(ranks)} leave out the times of "
        "most calls (unhang reduce --times keeps them)."
    )
    return (Note("info", "times", text),)


def situation_of(case: Case) -> tuple[Situation, tuple[Note, ...]]:
    """Work out everything that is known before anything is judged."""
    evidence = gather(case)
    standing = stand(evidence)
    split = split_groups(evidence, standing)
    if split is not None:
        evidence = gather(split[0])
        standing = stand(evidence)
    evidence = with_unproven_ends(with_unseen_ends(evidence), standing)
    moment = same_moment(evidence, standing)
    evidence, standing = moment.evidence, moment.standing
    heads = find_heads(evidence, moment.outdated)
    unlaunched = unlaunched_ranks(evidence, standing, heads)
    matched = rows_at_waiting_calls(evidence, heads)
    found = {each.waiting_call: each for each in disagreements(evidence, heads, matched)}
    explained = np.zeros(len(heads), np.bool_)
    explained[list(found)] = True
    pairs = pair_up(evidence, heads)
    blame = collective_edges(evidence, standing, heads, unlaunched)
    blame = blame.joined(pair_edges(evidence, standing, heads, pairs))
    situation = Situation(
        evidence=evidence,
        standing=standing,
        heads=heads,
        outdated=moment.outdated,
        matched=matched,
        pairs=pairs,
        disagreements=found,
        graph=make_graph(heads, blame, pair_links(pairs), unlaunched, explained),
        book=StackBook(case),
    )
    how_split = () if split is None else (split[1],)
    return situation, (*evidence.notes, *how_split, *moment.notes)


def _job(evidence: Evidence) -> Job:
    case = evidence.case
    created = case.calls.created_ns[case.calls.created_ns > 0]
    begun = [dump.window.first_ns for dump in case.dumps if dump.window.first_ns > 0]
    backends = {name.backend for name in case.names} | {dump.backend for dump in case.dumps}
    by_ring = {dump.rank for dump in evidence.dumps if dump.reported_by == BY_LAST_CALLS}
    return Job(
        world_size=len(evidence.ranks),
        ranks_seen=len(distinct(evidence.owner)),
        groups=len(case.groups),
        calls=case.n_calls,
        backends=tuple(sorted(backends - {""})),
        format_versions=tuple(sorted({dump.version for dump in case.dumps if dump.version})),
        first_ns=min((int(created.min()), *begun)) if len(created) else 0,
        last_ns=int(created.max()) if len(created) else 0,
        ranks_by_last_calls=len(by_ring),
    )


def _incident(case: Case) -> Incident:
    told = sorted(case.dumps, key=lambda dump: (dump.time_ns, dump.rank), reverse=True)
    return Incident(
        id=case.incident,
        job_id=next((dump.job_id for dump in told if dump.job_id), ""),
        attempt=next((dump.attempt for dump in told if dump.attempt), ""),
        reason=next((dump.reason for dump in told if dump.reason), ""),
        newest_ns=case.newest_ns,
    )
