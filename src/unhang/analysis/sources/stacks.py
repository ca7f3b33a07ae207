"""What stacks alone can say: who waits in a collective, and who is elsewhere.

A stack shows a moment, and names no sequence number: a loop that comes back to the same line looks
like one that hangs. So nothing here is of high confidence but a process that is stopped or dead,
one look alone is of low confidence, and whoever still moves is called slow rather than stuck.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from unhang._version import __version__
from unhang.analysis.sites import StackBook
from unhang.analysis.sources.exits import with_ends
from unhang.analysis.sources.log_join import with_logs
from unhang.analysis.sources.looks import RankLook, at_site, looks_of
from unhang.analysis.sources.stack_words import (
    MOST,
    MOVES,
    actions,
    common,
    doing,
    grouped,
    place_of,
    ranks_in,
    sentences,
    sites_of,
    subjects_of,
    unchanged,
)
from unhang.analysis.sources.traces import with_traces
from unhang.analysis.verdict import status_of, summary_of
from unhang.case import Case
from unhang.report import (
    CallSide,
    Confidence,
    Finding,
    Incident,
    Job,
    RankState,
    RankStatus,
    Report,
    Site,
)
from unhang.wording import count_of

__all__ = ["beside_dumps", "judge_stacks", "stack_findings"]

_AGAIN = "Look again some time later: unhang stacks --samples 2 --interval 30."
_RECORD = "Dumps tell which call it is and who called it: run under unhang run, or unhang dump."
_LOOP = (
    "A job that goes round slowly looks the same, if both looks meet it at the same place: stacks "
    "show no sequence numbers."
)


def judge_stacks(case: Case) -> Report:
    """The verdict of a case that holds stacks and no dumps."""
    looks = looks_of(case.samples)
    book = StackBook(case)
    found = with_ends(stack_findings(looks, case.world_size, book), case, looks, book)
    found = with_traces(with_logs(found, case), case.last_calls)
    findings = [replace(finding, id=f"f{number + 1}") for number, finding in enumerate(found)]
    return Report(
        status=status_of(findings),
        summary=summary_of(findings),
        job=Job(world_size=max(case.world_size, len(looks)), ranks_seen=len(looks)),
        incident=Incident(
            id=case.incident, newest_ns=max((s.time_ns for s in case.samples), default=0)
        ),
        findings=tuple(findings),
        ranks=tuple(_rank_table(looks, case.expected_ranks, findings, book)),
        stacks=dict(book.used),
        notes=case.notes,
        tool_version=__version__,
    )


@dataclass(frozen=True, slots=True)
class _Sides:
    """The ranks of a job by what their stacks show."""

    waiting: tuple[RankLook, ...]
    elsewhere: tuple[RankLook, ...]
    unseen: tuple[RankLook, ...]
    unlooked: int

    @property
    def seen(self) -> int:
        return len(self.waiting) + len(self.elsewhere)


def stack_findings(
    looks: Mapping[int, RankLook], world_size: int, book: StackBook
) -> tuple[Finding, ...]:
    """Findings from stacks alone; two at most are causes.

    Args:
        looks: The ranks by number.
        world_size: How many there should be; 0 where nothing tells.
        book: Takes the stacks that findings refer to.
    """
    sides = _take_sides(looks, world_size)
    everybody = (*sides.waiting, *sides.elsewhere)
    if not everybody:
        return (_insufficient("no stack of any rank could be taken.", sides),)
    moving = [look for look in everybody if look.moved or look.moves]
    held = [look for look in sides.elsewhere if look.held and not (look.gone or look.moves)]
    if sides.waiting and sides.elsewhere and not any(look.moved for look in sides.waiting):
        inside = tuple(look for look in sides.elsewhere if look.inside)
        absent = tuple(look for look in sides.elsewhere if not look.inside)
        found = [_absent(replace(sides, elsewhere=absent), book)] if absent else []
        return (*found, *([_held_inside(inside, sides, book)] if inside else []))
    if held:
        return (_held(held, sides, book),)
    if moving:
        return (_moving(moving, sides),)
    if sides.waiting:
        return (_all_wait(sides, book),)
    return (_host_program(sides, book),)


def beside_dumps(findings: Iterable[Finding]) -> list[Finding]:
    """Those findings that may stand where dumps show no cause.

    That everybody waits in one call is for the dumps to say, if they hold calls at all.
    """
    return [f for f in findings if f.role == "cause" and (f.culprits or f.code != "UH401")]


def _take_sides(looks: Mapping[int, RankLook], world_size: int) -> _Sides:
    """Who waits for peers and who does not.

    Whoever may be waiting below what its stack shows (in backward, for its device) counts as
    waiting where somebody else clearly does something of its own, and else as elsewhere.
    """
    seen = [look for look in looks.values() if not look.unseen]
    own = [look for look in seen if not (look.waits or look.may_wait)]
    waiting = [look for look in seen if look.waits or (own and look.may_wait)]
    return _Sides(
        waiting=tuple(waiting),
        elsewhere=tuple(look for look in seen if look not in waiting),
        unseen=tuple(look for look in looks.values() if look.unseen),
        unlooked=max(world_size - len(looks), 0),
    )


def _absent(sides: _Sides, book: StackBook) -> Finding:
    """Some wait in a collective, others are elsewhere: those never came."""
    culprits, victims = ranks_in(sides.elsewhere), ranks_in(sides.waiting)
    op = common([look.meaning.op for look in sides.waiting])
    return Finding(
        id="",
        code="UH101",
        role="cause",
        confidence=_confidence(sides),
        summary=(f"{_waiters(sides)}; {doing(sides.elsewhere)}{unchanged(sides.elsewhere)}."),
        culprits=culprits,
        victims=victims,
        subjects=subjects_of(sides.elsewhere),
        op=op or None,
        calls=(
            CallSide(ranks=culprits, role="culprit", op=op),
            *(
                CallSide(
                    ranks=ranks_in(same), role="victim", op=same[0].meaning.op, state="started"
                )
                for same in grouped(sides.waiting, by_op=True)
            ),
        ),
        sites=sites_of(sides.elsewhere, "culprit", book) + sites_of(sides.waiting, "victim", book),
        evidence=(*sentences(sides.elsewhere), *_incomplete(sides)),
        alternatives=_alternatives(sides),
        actions=actions(sides.elsewhere),
        moving=ranks_in(look for look in sides.elsewhere if look.moves),
    )


def _held_inside(inside: Sequence[RankLook], sides: _Sides, book: StackBook) -> Finding:
    """Some came to the call and cannot go on in it: stopped there, or stuck in the kernel."""
    op = common([look.inside for look in inside])
    certain = all(look.certain for look in inside) and len(inside) == len(sides.elsewhere)
    return Finding(
        id="",
        code="UH401",
        role="cause",
        confidence="high" if certain and not _incomplete(sides) else "medium",
        summary=f"{_waiters(sides)}; {doing(inside)}, inside {op or 'that call'}.",
        culprits=ranks_in(inside),
        victims=ranks_in(sides.waiting),
        subjects=subjects_of(inside),
        op=op or None,
        calls=tuple(
            CallSide(ranks=ranks_in(same), role=role, op=same[0].inside, state="started")
            for role, looks in (("culprit", inside), ("victim", sides.waiting))
            for same in grouped(looks, by_op=True)
        ),
        sites=sites_of(inside, "culprit", book) + sites_of(sides.waiting, "victim", book),
        evidence=(*sentences(inside), *_incomplete(sides)),
        actions=actions(inside),
    )


def _confidence(sides: _Sides) -> Confidence:
    """How far to trust it: a held process is certain, one look or movement is a guess."""
    if all(look.certain for look in sides.elsewhere) and not sides.unseen:
        return "high" if not sides.unlooked else "medium"
    stuck = all(look.moved is False for look in (*sides.waiting, *sides.elsewhere))
    stuck = stuck and not any(look.moves for look in sides.elsewhere)
    clear = all(look.waits for look in sides.waiting)
    complete = not sides.unseen and not sides.unlooked
    return "medium" if stuck and clear and complete else "low"


def _waiters(sides: _Sides) -> str:
    """Tell who waits, in what and where: "7 of 8 ranks wait in all_reduce at f (train.py:88)"."""
    total = sides.seen + len(sides.unseen)
    ops = common([look.meaning.op for look in sides.waiting])
    sites = {look.meaning.site for look in sides.waiting}
    where = at_site(next(iter(sites))) if len(sites) == 1 else ""
    verb = "waits" if len(sides.waiting) == 1 else "wait"
    what = f"in {ops}" if ops else "for their peers" if verb == "wait" else "for its peers"
    return f"{len(sides.waiting):,} of {count_of(total, 'rank')} {verb} {what}{where}"


def _held(held: Sequence[RankLook], sides: _Sides, book: StackBook) -> Finding:
    """Nobody is seen waiting, but some cannot go on at all."""
    others = [look for look in sides.elsewhere if look not in held]
    what = doing(held)
    return Finding(
        id="",
        code="UH602",
        role="cause",
        confidence="medium",
        summary=f"{what[:1].upper()}{what[1:]}; no rank is seen waiting in a collective.",
        culprits=ranks_in(held),
        subjects=subjects_of(held),
        sites=sites_of(held, "culprit", book),
        evidence=(*sentences(held), *sentences(others), *_incomplete(sides)),
        actions=actions(held),
    )


def _moving(moving: Sequence[RankLook], sides: _Sides) -> Finding:
    return Finding(
        id="",
        code="UH601",
        role="observation",
        confidence="low",
        summary=(
            f"The program moves: {count_of(len(moving), 'rank')} of {sides.seen:,} stood elsewhere "
            "in the first look, or worked between two looks."
        ),
        evidence=_incomplete(sides),
        actions=(_AGAIN,),
    )


def _all_wait(sides: _Sides, book: StackBook) -> Finding:
    """Everybody who was seen waits: for whom, stacks cannot tell, unless some were not seen."""
    groups = grouped(sides.waiting, by_op=True)
    where = "; ".join(place_of(same) for same in groups[:4])
    if sides.unseen or sides.unlooked:
        why = f"all ranks that were seen wait for their peers: {where}."
        return _insufficient(why, sides, sites=sites_of(sides.waiting, "victim", book))
    if len(groups) > 1:
        why = f"ranks wait in different calls, and stacks do not show their groups: {where}."
        return _insufficient(why, sides, sites=sites_of(sides.waiting, "victim", book))
    if any(look.moved is None for look in sides.waiting):
        why = f"all ranks wait in the same call, and one look cannot tell for how long: {where}."
        return _insufficient(why, sides, sites=sites_of(sides.waiting, "victim", book))
    return Finding(
        id="",
        code="UH401",
        role="cause",
        confidence="low",
        summary=f"All {sides.seen:,} ranks wait in the same call, and nothing moves: {where}.",
        victims=ranks_in(sides.waiting),
        op=sides.waiting[0].meaning.op or None,
        sites=sites_of(sides.waiting, "victim", book),
        evidence=("No rank was seen elsewhere, and no stack changed between two looks.",),
        alternatives=(_LOOP, "One rank may have skipped an earlier call, and be one behind."),
        actions=(_RECORD, _AGAIN),
    )


def _host_program(sides: _Sides, book: StackBook) -> Finding:
    """Nobody waits for a peer and nothing moves: the program itself is stuck."""
    if any(look.moved is None for look in sides.elsewhere) or sides.unseen or sides.unlooked:
        why = f"no rank that was seen waits for its peers: {doing(sides.elsewhere)}."
        return _insufficient(why, sides, sites=sites_of(sides.elsewhere, "victim", book))
    what = doing(sides.elsewhere)
    return Finding(
        id="",
        code="UH602",
        role="cause",
        confidence="low",
        summary=f"No rank is in communication, and none moves: {what}.",
        victims=ranks_in(sides.elsewhere),
        sites=sites_of(sides.elsewhere, "victim", book),
        evidence=(*sentences(sides.elsewhere), "No stack changed between two looks."),
        alternatives=("Each may be busy with long work of its own, such as compiling.",),
        actions=(*actions(sides.elsewhere), _AGAIN),
    )


def _insufficient(why: str, sides: _Sides, sites: tuple[Site, ...] = ()) -> Finding:
    return Finding(
        id="",
        code="UH901",
        role="observation",
        confidence="low",
        summary=f"Not enough evidence: {why}",
        victims=ranks_in(sides.waiting),
        sites=sites,
        evidence=_incomplete(sides),
        actions=(_AGAIN, _RECORD),
    )


def _incomplete(sides: _Sides) -> tuple[str, ...]:
    found = [
        f"Rank {look.rank} could not be looked at: {look.meaning.says}." for look in sides.unseen
    ]
    if sides.unlooked:
        found.append(
            f"{count_of(sides.unlooked, 'rank')} of the job were not looked at: other nodes?"
        )
    return tuple(found[:MOST])


def _alternatives(sides: _Sides) -> tuple[str, ...]:
    if all(look.certain for look in sides.elsewhere):
        return ()
    if any(look.moves for look in sides.elsewhere):
        return MOVES
    if any(look.moved is None for look in (*sides.waiting, *sides.elsewhere)):
        return ("One look cannot tell a job that passes by from one that is stuck.",)
    return (_LOOP,)


def _rank_table(
    looks: Mapping[int, RankLook],
    expected: Iterable[int],
    findings: Sequence[Finding],
    book: StackBook,
) -> Iterable[RankStatus]:
    causes = [finding for finding in findings if finding.role == "cause"]
    culprits = {rank for finding in causes for rank in finding.culprits}
    for rank in sorted({*expected, *looks}):
        look = looks.get(rank)
        if look is None:
            yield RankStatus(rank, "unknown", "not looked at")
            continue
        status: RankState = "culprit" if rank in culprits else _state(look, stuck=bool(causes))
        yield RankStatus(
            rank=rank,
            status=status,
            detail=look.meaning.says,
            host=look.host,
            pid=look.pid if look.pid > 0 else None,
            stack_id=book.refer(look.frames),
        )


def _state(look: RankLook, *, stuck: bool) -> RankState:
    if look.unseen:
        return "unknown"
    if look.waits or look.may_wait:
        return "waiting" if stuck else "ok"
    return "idle" if stuck else "ok"
