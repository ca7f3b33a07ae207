"""What must hold for any job: names, order and lost dumps do not change who is blamed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from unhang.analysis import diagnose
from unhang.case import CALL_DTYPES, STATUS_DTYPES, Calls, Case, Dump, GroupStatus
from unhang.model import DumpStatus, Group, OpName, Signature
from unhang.report import Report
from unhang.testing import FakeJob

EXAMPLES = settings(max_examples=40, deadline=None)
OPS = ("all_reduce", "broadcast", "_all_gather_base", "barrier")


@st.composite
def plans(draw: st.DrawFn) -> list[tuple[str, int, int, int]]:
    """A program of 4 ranks: (op, group number, size, rank that does not take part or -1) a call."""
    return draw(
        st.lists(
            st.tuples(
                st.sampled_from(OPS),
                st.integers(0, 2),
                st.sampled_from((4, 8)),
                st.sampled_from((-1, -1, -1, -1, 0, 1, 2, 3)),
            ),
            max_size=12,
        )
    )


MEMBERS = ((0, 1, 2, 3), (0, 1), (1, 2, 3))


def job_of(
    plan: list[tuple[str, int, int, int]],
    *,
    renamed: bool = False,
    ranks: Mapping[int, int] | None = None,
    backend: str = "nccl",
) -> FakeJob:
    """Run a plan. A rank that waits for somebody makes no more calls, as a host that blocks."""
    moved = ranks or {rank: rank for rank in range(4)}
    job = FakeJob(4, backend=backend)
    groups = [
        job.group([moved[r] for r in members], f"kind{i}", f"{'z' if renamed else 'a'}{i}")
        for i, members in enumerate(MEMBERS)
    ]
    blocked: set[int] = set()
    gone: set[int] = set()
    for number, (op, which, size, left_out) in enumerate(plan):
        members = MEMBERS[which]
        callers = [r for r in members if r not in blocked | gone and r != left_out]
        if left_out in members:
            gone.add(left_out)
        done = len(callers) == len(members)
        if callers:
            job.call(
                [moved[r] for r in callers],
                op,
                groups[which],
                sizes=[(size,)],
                site=f"plan.py:{number} run",
                finished=done,
            )
        if not done:
            blocked.update(callers)
    return job


def verdict(report: Report, back: Mapping[int, int] | None = None) -> list[object]:
    """What a report says, group names left out and ranks renamed back."""
    names = back or {rank: rank for rank in range(64)}

    def told(ranks: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(names[rank] for rank in ranks))

    findings = [
        (f.code, f.role, f.confidence, told(f.culprits), told(f.victims), f.seq, f.op)
        for f in report.findings
    ]
    return [report.status, *sorted(findings, key=str)]


@EXAMPLES
@given(plans())
def test_renaming_groups_changes_nothing(plan: list[tuple[str, int, int, int]]) -> None:
    """Groups are what their members make them, not what they are called."""
    plain, renamed = job_of(plan).case(), job_of(plan, renamed=True).case()
    assert verdict(diagnose(plain)) == verdict(diagnose(renamed))


@EXAMPLES
@given(plans(), st.permutations(range(4)))
def test_permuting_ranks_permutes_the_verdict(
    plan: list[tuple[str, int, int, int]], order: list[int]
) -> None:
    """No rank is special, the first one least of all."""
    back = dict(zip(order, range(4), strict=True))
    moved = job_of(plan, ranks=dict(enumerate(order))).case()
    assert verdict(diagnose(moved), back) == verdict(diagnose(job_of(plan).case()))


@EXAMPLES
@given(plans(), st.permutations(range(4)))
def test_the_order_of_dumps_changes_nothing(
    plan: list[tuple[str, int, int, int]], order: list[int]
) -> None:
    """The same evidence gives the same report."""
    job = job_of(plan)
    assert verdict(diagnose(job.case())) == verdict(diagnose(job.case(order=order)))


@EXAMPLES
@given(plans(), st.sets(st.integers(0, 3), max_size=2), st.sampled_from(("nccl", "gloo")))
@example(  # rank 1 keeps rank 0 waiting, whoever is wrong about the call of rank 3
    [("all_reduce", 1, 4, -1), ("all_reduce", 1, 4, 1), ("all_reduce", 2, 4, 2)], {3}, "nccl"
)
def test_lost_dumps_never_make_an_innocent_a_sure_culprit(
    plan: list[tuple[str, int, int, int]], lost: set[int], backend: str
) -> None:
    """Without a dump a rank may be suspected; it is not blamed with high confidence."""
    job = job_of(plan, backend=backend)
    guilty = set(diagnose(job.case()).culprits)
    job.missing = lost
    for cause in diagnose(job.case()).causes:
        if cause.confidence == "high":
            assert set(cause.culprits) <= guilty


@EXAMPLES
@given(plans())
def test_blame_needs_somebody_who_left(plan: list[tuple[str, int, int, int]]) -> None:
    """Who leaves no call out is suspected at most, and a job without faults is healthy.

    In its first step, as far as dumps show, it may be standing in the next group's first call.
    """
    left = {rank for _, which, _, rank in plan if rank in MEMBERS[which]}
    report = diagnose(job_of(plan).case())
    sure = [cause for cause in report.causes if cause.confidence != "low"]
    assert {rank for cause in sure for rank in cause.culprits} <= left
    if plan and not left:
        made = Counter((rank, which) for _, which, _, _ in plan for rank in MEMBERS[which])
        looped = {rank for (rank, _), calls in made.items() if calls > 1} == {0, 1, 2, 3}
        assert report.status in (("healthy",) if looped else ("healthy", "insufficient"))


@st.composite
def arbitrary_cases(draw: st.DrawFn) -> Case:
    """Well-formed nonsense: any numbers in any column, dictionaries and ranges kept."""
    groups = tuple(
        Group(str(i), draw(st.sampled_from(("", "tp"))), tuple(draw(st.permutations(range(3)))))
        for i in range(draw(st.integers(1, 3)))
    )
    ops = ("all_reduce", "send", "recv", "coalesced", "all_to_all", "mystery")
    names = tuple(
        OpName(f"{b}:{op}", b, op, draw(st.integers(-1, 4)), draw(st.integers(-1, 4)))
        for b in ("nccl", "gloo", "")
        for op in ops
    )
    sizes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=2).map(tuple)
    signatures = tuple(Signature(draw(sizes), draw(sizes), ("Float",), ()) for _ in range(3))
    lengths = draw(st.lists(st.integers(0, 6), min_size=0, max_size=4))
    total = sum(lengths)
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    highest = {"group": len(groups), "name": len(names), "signature": 3, "state": 4, "origin": 2}
    columns = {key: random.integers(-1, 5, total) for key in CALL_DTYPES}
    columns |= {key: random.integers(0, high, total) for key, high in highest.items()}
    columns |= {key: random.random(total) < 0.5 for key in ("retired", "is_p2p")}
    columns |= {key: np.full(total, -1) for key in ("stack", "thread")}
    dumps, start = [], 0
    for index, length in enumerate(lengths):
        rank = draw(st.integers(-1, 4))
        dumps.append(
            Dump(
                index,
                rank,
                f"d{index}",
                status=draw(st.sampled_from(DumpStatus)),
                start=start,
                stop=start + length,
                backend=draw(st.sampled_from(("", "nccl", "gloo"))),
                active_only=draw(st.booleans()),
                first_record_id=draw(st.integers(-1, 2)),
            )
        )
        columns["dump"][start : start + length] = index
        columns["rank"][start : start + length] = rank
        start += length
    rows = 4 if lengths else 0
    status = {key: random.integers(-1, 5, rows) for key in STATUS_DTYPES}
    status["dump"] = random.integers(0, max(len(lengths), 1), rows)
    status["group"] = random.integers(-1, len(groups), rows)
    return Case(
        calls=Calls.from_columns(columns),
        dumps=tuple(dumps),
        groups=groups,
        group_status=GroupStatus.from_columns(status),
        names=names,
        signatures=signatures,
        world_size=draw(st.integers(0, 5)),
    )


@settings(max_examples=100, deadline=None)
@given(arbitrary_cases(), st.booleans())
def test_any_case_gives_a_report(case: Case, slow: bool) -> None:  # noqa: FBT001 - drawn
    """Nonsense in, a report out: with a cause if and only if its status says so."""
    report = diagnose(case, slow=slow)
    assert (report.status == "problem") == bool(report.causes)
    expected = set(case.expected_ranks) | {r for g in case.groups for r in g.members}
    assert {status.rank for status in report.ranks} == {r for r in expected if r >= 0}
    for finding in report.findings:
        assert list(finding.culprits) == sorted(set(finding.culprits))
        assert not set(finding.culprits) & set(finding.victims)


def test_an_empty_case_gives_a_report() -> None:
    """Nothing at all is not enough evidence."""
    assert diagnose(Case()).status == "insufficient"
    assert diagnose(replace(Case(), world_size=3)).status == "insufficient"
    assert np.array_equal(Case().calls.rank, [])
