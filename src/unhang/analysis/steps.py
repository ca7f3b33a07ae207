"""From a case to a report: the steps of docs/how-it-works.md, one after the other.

Evidence, standing, heads, agreement, waiting, roots; then a finding for each root. This module only
puts the steps in order and counts; every judgement is made in the module that it belongs to.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from unhang.analysis.findings.causes import claims_of
from unhang.analysis.findings.idle import idle_claim
from unhang.analysis.findings.late import late_claims
from unhang.analysis.judgement import Backdrop, numbered, report_of, settle
from unhang.analysis.matching.collectives import disagreements, rows_at_waiting_calls
from unhang.analysis.matching.pairs import pair_edges, pair_links, pair_up
from unhang.analysis.matching.wait_graph import collective_edges, make_graph
from unhang.analysis.rank_table import rank_table
from unhang.analysis.sites import StackBook
from unhang.analysis.situation import Situation
from unhang.analysis.sources.exits import with_ends
from unhang.analysis.sources.log_join import with_logs
from unhang.analysis.sources.logs import judge_log_case
from unhang.analysis.sources.looks import looks_of, looks_with_dumps
from unhang.analysis.sources.reports import judge_reports, with_reports
from unhang.analysis.sources.stack_join import with_stacks
from unhang.analysis.sources.stacks import beside_dumps, judge_stacks, stack_findings
from unhang.analysis.sources.traces import judge_traces, with_traces
from unhang.analysis.state.columns import Bools
from unhang.analysis.state.heads import Heads, find_heads
from unhang.analysis.state.index import Evidence, gather
from unhang.analysis.state.progress import Standing, stand
from unhang.analysis.state.split_groups import told_apart
from unhang.analysis.state.stale import same_moment
from unhang.analysis.words import finding_of
from unhang.case import Case
from unhang.model import Note
from unhang.report import Incident, Job, Report

__all__ = ["diagnose"]


def diagnose(case: Case, *, slow: bool = False) -> Report:
    """Find out why the job of this case does not move.

    Args:
        case: What was read; nothing in it is trusted to be complete.
        slow: Rank late arrivals even if something is stuck.

    Returns:
        The verdict. The same case gives the same report, in whatever order its dumps stand.
    """
    if not case.reports:
        return _judged(case, slow=slow)
    if not (case.dumps or case.samples or case.log_events or case.last_calls):
        return judge_reports(case)
    return with_reports(_judged(case, slow=slow), case)


def _judged(case: Case, *, slow: bool) -> Report:
    """The verdict from what the job itself left behind."""
    looks = looks_of(case.samples)
    if looks and not case.dumps:
        return judge_stacks(case)
    if not case.dumps and (case.log_events or case.last_calls):
        return (
            judge_log_case(case) if case.log_events else judge_traces(case.last_calls, case.notes)
        )
    situation, notes = look(case)
    claims, cut = settle(claims_of(situation))
    findings = [finding_of(claim) for claim in claims]
    deeper = looks_with_dumps(case)
    findings = with_stacks(findings, deeper, situation.book)
    findings = with_ends(findings, case, deeper, situation.book)
    stuck = any(finding.role == "cause" for finding in findings)
    if not stuck:
        seen = beside_dumps(stack_findings(looks, case.world_size, situation.book))
        findings = [*seen, *findings]
        stuck = any(finding.role == "cause" for finding in findings)
    unseen = situation.silent.any() or situation.cut.any()
    if slow or not (findings or unseen):
        findings += map(finding_of, late_claims(situation, eager=slow))
    if not findings:
        findings = [finding_of(idle_claim(situation))]
    findings = with_traces(with_logs(findings, case), case.last_calls)
    backdrop = Backdrop(
        job=_job(situation.evidence),
        incident=_incident(case),
        table=partial(rank_table, situation),
        stacks=situation.book.used,
        notes=(*case.notes, *notes, *cut),
    )
    return report_of(numbered(findings), backdrop)


def look(case: Case) -> tuple[Situation, tuple[Note, ...]]:
    """Work out everything that is known before anything is judged."""
    evidence = gather(case)
    standing = stand(evidence)
    apart = told_apart(evidence, standing)
    if apart is not None:
        evidence = gather(apart[0])
        standing = stand(evidence)
    moment = same_moment(evidence, standing)
    evidence, standing = moment.evidence, moment.standing
    heads = find_heads(evidence, moment.outdated)
    unlaunched = _unlaunched(evidence, standing, heads)
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
        unlaunched=unlaunched,
        matched=matched,
        pairs=pairs,
        disagreements=found,
        graph=make_graph(heads, blame, pair_links(pairs), unlaunched, explained),
        book=StackBook(case),
    )
    split = () if apart is None else (apart[1],)
    return situation, (*evidence.notes, *split, *moment.notes)


def _unlaunched(evidence: Evidence, standing: Standing, heads: Heads) -> Bools:
    """Ranks whose head is recorded while their counters stand before it and a peer's do not."""
    unlaunched = np.zeros(len(evidence.ranks), np.bool_)
    inside = np.flatnonzero((heads.waiting_call >= 0) & (heads.waiting_call < heads.n_collective))
    waiting_call = heads.waiting_call[inside]
    at = standing.at(inside, heads.channel[waiting_call])
    has = at >= 0
    counted = np.where(has, standing.counted[at], -1) if len(standing.keys) else at
    counts = has & (counted >= 0)
    launched = np.zeros(max(len(heads), 1), np.bool_)
    launched[waiting_call[counts & (counted >= heads.seq[waiting_call])]] = True
    unlaunched[inside] = counts & (counted == heads.seq[waiting_call] - 1) & launched[waiting_call]
    return unlaunched


def _job(evidence: Evidence) -> Job:
    case = evidence.case
    created = case.calls.created_ns[case.calls.created_ns > 0]
    backends = {name.backend for name in case.names} | {dump.backend for dump in case.dumps}
    return Job(
        world_size=len(evidence.ranks),
        ranks_seen=len(np.unique(evidence.owner)),
        groups=len(case.groups),
        calls=len(case.calls),
        backends=tuple(sorted(backends - {""})),
        format_versions=tuple(sorted({dump.version for dump in case.dumps if dump.version})),
        first_ns=int(created.min()) if len(created) else 0,
        last_ns=int(created.max()) if len(created) else 0,
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
