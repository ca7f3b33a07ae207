"""Compare the watchdogs' lines of all ranks: who had not enqueued the call that others waited in.

The counters say what was enqueued and completed when a watchdog gave up. They name groups by their
description at best and move only after the library's call has returned, so what is concluded from
them alone is of medium confidence at most.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from unhang.model import LogEvent
from unhang.report import CallSide, Finding, GroupRef
from unhang.wording import rank_phrase

__all__ = ["Counters", "compare_counters", "counters_of"]


@dataclass(frozen=True, slots=True)
class Counters:
    """What a rank's watchdog printed of one group: -1 or "" where it did not."""

    enqueued: int = -1
    completed: int = -1
    seq: int = -1
    op: str = ""
    numel: int = -1


def compare_counters(events: Sequence[LogEvent]) -> list[Finding]:
    """What the watchdogs' lines of all ranks amount to, group by group."""
    found = []
    for name, ranks in sorted(counters_of(events).items()):
        if len(ranks) > 1:
            found.extend(_compare(name, ranks))
    return found


def counters_of(events: Sequence[LogEvent]) -> dict[str, dict[int, Counters]]:
    """What each rank's watchdog printed, by the name of the group (or "") and rank."""
    groups: dict[str, dict[int, Counters]] = defaultdict(dict)
    last_group: dict[int, str] = {}
    for event in events:
        if event.rank < 0 or event.code not in ("UH701", "UH702", "UH703"):
            continue
        fields = event.fields
        name = fields.get("desc") or fields.get("pg") or last_group.get(event.rank, "")
        last_group[event.rank] = name
        old = groups[name].get(event.rank) or groups[""].pop(event.rank, Counters())
        groups[name][event.rank] = Counters(
            enqueued=_int(fields, "enqueued", old.enqueued),
            completed=_int(fields, "completed", old.completed),
            seq=_int(fields, "seq", old.seq),
            op=fields.get("op", old.op),
            numel=_int(fields, "numel_in", old.numel),
        )
    return groups


def _int(fields: Mapping[str, str], key: str, default: int) -> int:
    text = fields.get(key, "")
    return int(text) if text.lstrip("-").isdigit() else default


def _compare(name: str, ranks: Mapping[int, Counters]) -> list[Finding]:
    told = {rank: c.enqueued for rank, c in ranks.items() if c.enqueued >= 0}
    calls = {rank: c for rank, c in ranks.items() if c.seq >= 0}
    # Whoever enqueued further than the call that timed out is ahead, which is no fault.
    stuck = min((c.seq for c in calls.values()), default=max(told.values(), default=-1))
    if any(count < stuck for count in told.values()):
        found = _not_enqueued(name, stuck, told, ranks)
        return [found if calls else replace(found, confidence="low")]
    if len(calls) < 2:  # noqa: PLR2004 - one rank alone compares with nobody
        return []
    if len({c.seq for c in calls.values()}) > 1:
        return []
    for code, values in (
        ("UH201", {rank: c.op for rank, c in calls.items() if c.op}),
        ("UH202", {rank: str(c.numel) for rank, c in calls.items() if c.numel >= 0}),
    ):
        if len(set(values.values())) > 1:
            return [_mismatch(code, name, values, calls)]
    return [_all_joined(name, calls)]


def _not_enqueued(
    name: str, stuck: int, told: Mapping[int, int], ranks: Mapping[int, Counters]
) -> Finding:
    behind = tuple(sorted(rank for rank, count in told.items() if count < stuck))
    ahead = tuple(sorted(set(ranks) - set(behind)))
    op = next((ranks[rank].op for rank in ahead if ranks[rank].op), None)
    minority = len(behind) * 2 <= len(ranks) and len(ranks) > 1
    return Finding(
        id="",
        code="UH101",
        role="cause",
        confidence="medium" if minority else "low",
        summary=(
            f"By the watchdogs' counters {rank_phrase(behind)} had not enqueued call #{stuck} of "
            f"{name or 'the group'} in which {rank_phrase(ahead)} waited."
        ),
        culprits=behind if minority else (),
        victims=ahead,
        group=GroupRef(name, name, len(ranks)) if name else None,
        seq=stuck,
        op=op,
        calls=(
            CallSide(ahead, "victim", seq=stuck, op=op or ""),
            *(CallSide((rank,), "culprit", seq=told[rank]) for rank in behind[:8]),
        ),
        evidence=tuple(f"rank {rank}: last enqueued work {told[rank]}" for rank in behind[:8]),
        alternatives=(
            "A rank that is stuck inside the library's call has not moved this counter either.",
        ),
        actions=(f"Take the stacks of {rank_phrase(behind)} with unhang stacks --native.",),
    )


def _mismatch(
    code: str, name: str, values: Mapping[int, str], calls: Mapping[int, Counters]
) -> Finding:
    sides: dict[str, list[int]] = defaultdict(list)
    for rank, value in sorted(values.items()):
        sides[value].append(rank)
    largest = max(len(members) for members in sides.values())
    majority = [value for value, members in sides.items() if len(members) == largest]
    odd = [r for value, members in sides.items() if value != majority[0] for r in members]
    clear = len(majority) == 1 and largest * 2 > len(values)
    seq = next(iter(calls.values())).seq
    said = "; ".join(f"{rank_phrase(tuple(members))}: {value}" for value, members in sides.items())
    return Finding(
        id="",
        code=code,
        role="cause",
        confidence="medium" if clear else "low",
        summary=f"Ranks disagree about call #{seq} of {name or 'the group'}: {said}.",
        culprits=tuple(sorted(odd)) if clear else (),
        victims=tuple(sorted(set(values) - set(odd))) if clear else tuple(sorted(values)),
        group=GroupRef(name, name, len(values)) if name else None,
        seq=seq,
        calls=tuple(
            CallSide(tuple(members), "peer", seq=seq, op=calls[members[0]].op)
            for members in sides.values()
        ),
        evidence=(said,),
        alternatives=("A call skipped long before makes later calls meet that do not belong.",),
        actions=("Diagnose the dumps for the first call that differs.",),
    )


def _all_joined(name: str, calls: Mapping[int, Counters]) -> Finding:
    counters = next(iter(calls.values()))
    return Finding(
        id="",
        code="UH401",
        role="cause",
        confidence="low",
        summary=(
            f"All {len(calls)} ranks that timed out were in the same call #{counters.seq} "
            f"({counters.op}) of {name or 'the group'}: no rank is at fault by these lines."
        ),
        victims=tuple(sorted(calls)),
        seq=counters.seq,
        op=counters.op or None,
        evidence=("Sequence number, operation and sizes agree on all of them.",),
        alternatives=("Ranks that print no such line may be absent from the call.",),
        actions=("Check the ranks that print nothing; then links and GPUs with unhang doctor.",),
    )
