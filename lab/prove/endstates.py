"""Run a small program to its end state, and make of that the dumps that its ranks would leave.

The simulator runs it. What a recorder would write is put straight into the columns of a `Case`, as
ingest makes them of dumps of format 2.10: a million files would say the same and take a day.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from lab.model.job import HostSync, Issue, Plan, Site, Step, Stop
from lab.prove.programs import OPS, Deviation, Members, Program, Shape, StepCall
from lab.simulate.engine import Record, run
from unhang.case import Case, Dump
from unhang.casebuilder import CallRow, CaseBuilder
from unhang.model import DumpStatus, Frame, Group, OpName, Signature, State

Entry: TypeAlias = tuple[int, str, int, int, int, int, int, bool]
"""Group, op, elements, peer, line, sequence number, P2P number, whether it has finished."""

EndState: TypeAlias = tuple[tuple[Entry, ...] | None, ...]
"""Entries of each rank; None for a rank that left no dump."""

_SIZE, _OTHER_SIZE = 4, 8
_EXTRA_LINE: Final = 90
_FILE = "train.py"
_START_NS = 1_700_000_000_000_000_000


def end_state(program: Program, deviation: Deviation | None) -> EndState:
    """What the dumps of a program show once nothing moves any more."""
    programs = [_steps(program, rank, deviation) for rank in range(program.n_ranks)]
    outcome = run(Plan("prove", list(_groups(program.shape)), programs, ends=False, pace=0.0), 0)
    gone = deviation.rank if deviation and deviation.kind == "ended" else -1
    return tuple(
        None if rank == gone else tuple(map(_entry, records))
        for rank, records in enumerate(outcome.records)
    )


def run_calls(
    groups: Sequence[Members], calls: Sequence[Sequence[tuple[int, str, int, int]]], mode: str
) -> EndState:
    """The end state of calls (group, op, elements, peer) of each rank, without lines."""
    programs: list[list[Step]] = []
    for own in calls:
        issues = [
            Issue(g, op, ((n,),), ((n,),), _site(0), peer=peer, sync=mode != "async")
            for g, op, n, peer in own
        ]
        programs.append([*_paced(issues, mode), Stop()])
    named = [Group(str(n), "", members, backend="nccl") for n, members in enumerate(groups)]
    outcome = run(Plan("prove", named, programs, ends=False, pace=0.0), 0)
    return tuple(tuple(map(_entry, records)) for records in outcome.records)


def bare(state: EndState) -> EndState:
    """An end state without lines."""
    return tuple(
        entries and tuple((*entry[:4], 0, *entry[5:]) for entry in entries) for entries in state
    )


def other_calls(call: tuple[int, str, int, int]) -> list[tuple[int, str, int, int]]:
    """The calls with another op or another size, one by one."""
    group, op, size, peer = call
    sized = (group, op, _OTHER_SIZE if size == _SIZE else _SIZE, peer)
    return [sized] if peer >= 0 else [sized, (group, OPS[1 - OPS.index(op)], size, peer)]


def members_of(shape: Shape) -> list[Members]:
    """Members of each group, kind by kind."""
    return [members for kind in shape for members in kind]


def _paced(issues: Sequence[Step], mode: str) -> list[Step]:
    if mode != "blocking":
        return list(issues)
    return [each for issue in issues for each in (issue, HostSync())]


def _groups(shape: Shape) -> tuple[Group, ...]:
    return tuple(
        Group(str(n), f"kind{kind}", members, backend="nccl")
        for n, (kind, members) in enumerate(
            (kind, members) for kind, all_of in enumerate(shape) for members in all_of
        )
    )


def _entry(record: Record) -> Entry:
    issue = record.issue
    size = issue.inputs[0][0]
    return (
        issue.group, issue.op, size, issue.peer, issue.site.line, record.seq, record.p2p_seq,
        record.finished is not None,
    )  # fmt: skip


def _steps(program: Program, rank: int, deviation: Deviation | None) -> list[Step]:
    own = [
        _issue(program, call, rank, line)
        for line, call in enumerate(program.step, start=1)
        if call.members(program.shape, rank)
    ]
    middle: list[Step] = list(own)
    stays = False
    if deviation is not None and deviation.rank == rank:
        middle, stays = _deviate(own, deviation), deviation.kind in ("stopped", "ended")
    after = [] if stays else own * program.after
    steps: list[Step] = [*own * program.before, *middle, *after]
    return [*_paced(steps, program.mode), Stop()]


def _deviate(own: list[Issue], deviation: Deviation) -> list[Step]:
    at, kind = deviation.at, deviation.kind
    call = own[at]
    if kind == "left-out":
        return [*own[:at], *own[at + 1 :]]
    if kind == "extra":
        return [*own[:at], call, replace(call, site=_site(_EXTRA_LINE)), *own[at + 1 :]]
    if kind == "swapped":
        return [*own[:at], own[at + 1], call, *own[at + 2 :]]
    if kind == "other-op":
        op = OPS[1 - OPS.index(call.op)]
        return [*own[:at], replace(call, op=op), *own[at + 1 :]]
    if kind == "other-size":
        size = ((_OTHER_SIZE,),)
        return [*own[:at], replace(call, inputs=size, outputs=size), *own[at + 1 :]]
    return [*own[:at]]


def _issue(program: Program, call: StepCall, rank: int, line: int) -> Issue:
    size = ((_SIZE,),)
    queued = program.mode != "async"
    members = call.members(program.shape, rank)
    first = sum(len(kind) for kind in program.shape[: call.kind])
    group = first + program.shape[call.kind].index(members)
    if call.op >= 0:
        return Issue(group, OPS[call.op], size, size, _site(line), sync=queued)
    sends = rank == members[call.source]
    op, peer = ("send", call.target) if sends else ("recv", call.source)
    return Issue(group, op, size, size, _site(line), peer=members[peer], sync=queued)


def _site(line: int) -> Site:
    return Site("step", _FILE, line)


# ------------------------------------------------------------------ dumps


def case_of(shape: Shape, state: EndState) -> Case:
    """The case that ingest would make of the dumps of an end state."""
    builder = CaseBuilder()
    groups = _groups(shape)
    for group in groups:
        builder.groups[group]
    for rank, entries in enumerate(state):
        if entries is not None:
            _add(builder, groups, rank, entries)
    return builder.build(world_size=len(state))


def _add(
    builder: CaseBuilder, groups: tuple[Group, ...], rank: int, entries: tuple[Entry, ...]
) -> None:
    known = list(dict.fromkeys(entry[0] for entry in entries))
    dump = Dump(
        index=0,
        rank=rank,
        source=f"rank_{rank}",
        status=DumpStatus.OK,
        backend="nccl",
        version="2.10",
        has_stacks=True,
        first_record_id=0 if entries else -1,
        group_ids=tuple(known),
    )
    rows = [_row(groups, rank, number, entry) for number, entry in enumerate(entries)]
    index = builder.add_dump(dump, rows)
    for number in known:
        own = [entry for entry in entries if entry[0] == number]
        done = [entry for entry in own if entry[7]]
        counters = _counted(own), -1, _counted(done)
        builder.add_status(index, groups[number], counters, number)


def _counted(entries: list[Entry]) -> int:
    if not entries:
        return -1
    last = entries[-1]
    return last[6] if last[3] >= 0 else last[5]


def _row(groups: tuple[Group, ...], rank: int, number: int, entry: Entry) -> CallRow:
    group, op, size, peer, line, seq, p2p_seq, finished = entry
    members = groups[group].members
    name = OpName(f"nccl:{op}", "nccl", op)
    if peer >= 0:
        me, other = members.index(rank), members.index(peer)
        arrow, ends = ("->", (me, other)) if op == "send" else ("<-", (other, me))
        name = OpName(f"nccl:{op} {me}{arrow}{other}", "nccl", op, *ends)
    sizes = ((size,),)
    created = _START_NS + number * 1_000_000
    return CallRow(
        group=groups[group],
        name=name,
        record_id=number,
        seq=seq,
        p2p_seq=p2p_seq,
        op_id=number,
        is_p2p=peer >= 0,
        state=int(State.COMPLETED if finished else State.SCHEDULED),
        retired=finished,
        signature=Signature(sizes, sizes, ("Float",), ("Float",)),
        created_ns=created,
        completed_ns=created + 500_000 if finished else 0,
        timeout_ms=600_000,
        thread="python",
        frames=(Frame("step", _FILE, line),),
    )
