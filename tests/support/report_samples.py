"""Reports made by hand, one of each kind: what the renderers' tests draw."""

from __future__ import annotations

from unhang.model import Frame, Note
from unhang.report import (
    CallSide,
    Finding,
    GroupRef,
    Incident,
    Job,
    RankStatus,
    Report,
    Site,
    Subject,
    Wait,
)

WORLD = GroupRef("0", "default_pg", 8)
_DATA = "/home/user/project/src/data.py"
_TRAIN = "/home/user/project/src/train.py"


def never_joined(ranks: int = 8, culprit: int = -1) -> Report:
    """The classic: one rank sits in its data loader, all others wait in an all_reduce."""
    bad = culprit % ranks
    others = tuple(rank for rank in range(ranks) if rank != bad)
    group = GroupRef("0", "default_pg", ranks)
    call = "all_reduce #41 of default_pg"
    summary = f"Rank {bad} never called {call}, in which {ranks - 1:,} ranks wait."
    finding = Finding(
        "f1",
        "UH101",
        "cause",
        "high",
        summary,
        culprits=(bad,),
        victims=others,
        group=group,
        seq=41,
        op="all_reduce",
        calls=(
            CallSide((bad,), "culprit", group, 41, None, "all_reduce"),
            CallSide(
                others,
                "victim",
                group,
                41,
                None,
                "all_reduce",
                ((4096, 4096),),
                ("Float",),
                None,
                "scheduled",
            ),
        ),
        waits=tuple(Wait(rank, bad, call) for rank in others),
        sites=(
            Site((bad,), "culprit", _DATA, 31, "load_batch", "s1"),
            Site(others, "victim", _TRAIN, 88, "train_step", "s2"),
        ),
        evidence=(
            f"The last call of rank {bad} is all_reduce #40 of default_pg, and it finished.",
            f"{ranks - 1:,} of {ranks:,} members are in {call}, the first for 31 s.",
            "All windows cover the call.",
        ),
        alternatives=(f"Rank {bad} may be slow rather than stuck: look twice.",),
        actions=(
            f"Look at the stack of rank {bad} on its host: unhang stacks --rank {bad}",
            "See what load_batch waits for: a file system, a worker process, a lock.",
        ),
    )
    rows = [
        RankStatus(rank, "waiting", f"in {call}", host=f"node{rank // 8 + 1:02}", pid=4000 + rank)
        for rank in others
    ]
    rows.append(RankStatus(bad, "culprit", "finished all_reduce #40 last", host="node01", pid=4242))
    return Report(
        "problem",
        summary,
        job=Job(
            ranks,
            ranks,
            2,
            80 * ranks,
            ("gloo",),
            ("2.10",),
            1_763_640_000_000_000_000,
            1_763_640_300_000_000_000,
        ),
        incident=Incident("1", "4711", "0", "hang watch", 1_763_640_300_000_000_000),
        findings=(finding,),
        ranks=tuple(sorted(rows, key=lambda row: row.rank)),
        stacks={
            "s1": (
                Frame("poll", "/usr/lib/python3.11/multiprocessing/connection.py", 930),
                Frame("load_batch", _DATA, 31),
                Frame("main", _TRAIN, 101),
            ),
            "s2": (Frame("train_step", _TRAIN, 88),),
        },
        notes=(
            Note("info", "rank_3", "members of group 0 were inferred from who called on it"),
            Note("info", "rank_4", "members of group 0 were inferred from who called on it"),
            Note("warning", "rank_5", "the file is cut short; 76 whole entries were kept"),
        ),
    )


def wait_cycle() -> Report:
    """Two groups entered in crossed order: a loop, and no rank is at fault."""
    dp, tp = GroupRef("1", "dp", 2), GroupRef("2", "tp", 2)
    finding = Finding(
        "f1",
        "UH301",
        "cause",
        "high",
        "Ranks 0 and 1 wait for each other: dp and tp were entered in crossed order.",
        victims=(0, 1),
        calls=(
            CallSide(
                (0,), "peer", dp, 12, None, "all_reduce", ((8,),), ("Float",), None, "started"
            ),
            CallSide((1,), "peer", tp, 7, None, "all_gather", ((8,),), ("Half",), None, "started"),
        ),
        waits=(Wait(0, 1, "all_reduce #12 of dp"), Wait(1, 0, "all_gather #7 of tp")),
        sites=(
            Site((0,), "peer", _TRAIN, 52, "sync_gradients"),
            Site((1,), "peer", _TRAIN, 47, "gather_logits"),
        ),
        evidence=("Each of the two has the other's call queued behind its own.",),
        actions=("Call all_reduce and all_gather in the same order on all ranks.",),
    )
    return Report(
        "problem",
        finding.summary,
        job=Job(2, 2, 3, 38, ("nccl",), ("2.10",)),
        findings=(finding,),
        ranks=(
            RankStatus(0, "waiting", "in all_reduce #12 of dp"),
            RankStatus(1, "waiting", "in all_gather #7 of tp"),
        ),
    )


def cascade(ranks: int = 8192) -> Report:
    """A big job: two roots, hundreds of consequences, many different states."""
    causes = tuple(
        Finding(
            f"f{number}",
            "UH105",
            "cause",
            "high",
            f"The device of rank {rank} finishes nothing while its host goes on.",
            culprits=(rank,),
            victims=tuple(r for r in range(ranks) if r % 2 == number % 2 and r != rank),
            sites=(Site((rank,), "culprit", _TRAIN, 90, "backward"),),
            evidence=(f"Rank {rank} lags in 14 of 14 groups.",),
            actions=(f"Check the GPU of rank {rank}: nvidia-smi -q",),
        )
        for number, rank in enumerate((12, 1014), start=1)
    )
    consequences = tuple(
        Finding(
            f"f{number + 3}",
            "UH401",
            "consequence",
            "medium",
            f"All members are in all_reduce #9 of tp {number} and it does not move.",
            victims=tuple(range(number * 8, number * 8 + 8)),
            caused_by=(f"f{number % 2 + 1}",),
        )
        for number in range(200)
    )
    rows = tuple(
        RankStatus(
            rank,
            "culprit" if rank in (12, 1014) else "waiting",
            f"in all_reduce #9 of tp {rank // 8}",
            host=f"node{rank // 8:04}",
        )
        for rank in range(ranks)
    )
    return Report(
        "problem",
        "The devices of ranks 12 and 1014 finish nothing; all others wait for them.",
        job=Job(ranks, ranks, 2100, 4_000_000, ("nccl",), ("2.10", "2.7")),
        findings=(*causes, *consequences),
        ranks=rows,
        notes=tuple(Note("warning", f"rank_{r}", f"{r} bytes were skipped") for r in range(40)),
    )


def hostile() -> Report:
    """Every string from outside tries to take over the terminal, the page or the markup."""
    bad = (
        "\x1b]0;owned\x07\x1b[2J\r\n[bold red]</script><img src=x onerror=alert(1)>|`*_\u202e\ud800"
    )
    group = GroupRef(bad, bad, 2)
    finding = Finding(
        "f1",
        "UH201",
        "cause",
        "low",
        f"One {bad} calls what the other does not.",
        culprits=(1,),
        victims=(0,),
        subjects=(Subject("host", bad, host=bad),),
        group=group,
        op=bad,
        calls=(CallSide((1,), "culprit", group, 1, None, bad, ((1,),), (bad,), None, bad),),
        waits=(Wait(0, 1, bad), Wait(1, 0, f"{bad} too")),
        sites=(Site((1,), "culprit", bad, 3, bad, "s1"),),
        evidence=(bad,),
        alternatives=(bad,),
        actions=(bad, bad),
    )
    return Report(
        "problem",
        f"Hostile {bad}",
        job=Job(2, 2, 1, 2, (bad,), (bad,)),
        incident=Incident(bad, bad, bad, bad),
        findings=(finding,),
        ranks=(RankStatus(0, "waiting", bad, bad, bad), RankStatus(1, "culprit", bad, bad, bad)),
        stacks={"s1": (Frame(bad, bad, 1), Frame(bad, bad, 2))},
        notes=(Note("error", bad, bad),),
    )


def healthy() -> Report:
    """Nothing wrong."""
    return Report(
        "healthy",
        "All 4 ranks finished every call that they made.",
        job=Job(4, 4, 2, 96, ("gloo",), ("2.10",)),
        findings=(Finding("f1", "UH601", "observation", "high", "No call is in flight anywhere."),),
        ranks=tuple(RankStatus(rank, "idle", "finished barrier #24 last") for rank in range(4)),
    )


def insufficient() -> Report:
    """Too little evidence, with what to switch on."""
    summary = "The windows of the 4 ranks do not overlap: no verdict is possible."
    return Report(
        "insufficient",
        summary,
        job=Job(4, 3, 1, 8000, ("nccl",), ("2.4",)),
        findings=(
            Finding(
                "f1",
                "UH901",
                "observation",
                "low",
                summary,
                evidence=("The newest call of rank 0 is older than the oldest of rank 1.",),
                actions=("Record more: TORCH_FR_BUFFER_SIZE=20000",),
            ),
        ),
        ranks=(
            *(RankStatus(rank, "unknown", "window does not overlap") for rank in range(3)),
            RankStatus(3, "silent", "left no dump"),
        ),
    )


def slow() -> Report:
    """A job that moves, but late."""
    return Report(
        "slow",
        "Rank 2 arrives last in 96 % of all calls, 41 ms late in the median.",
        job=Job(4, 4, 1, 4000, ("nccl",), ("2.10",)),
        findings=(
            Finding(
                "f1",
                "UH501",
                "observation",
                "medium",
                "Rank 2 arrives last in 96 % of all calls, 41 ms late in the median.",
                culprits=(2,),
                victims=(0, 1, 3),
            ),
        ),
        ranks=tuple(RankStatus(rank, "behind" if rank == 2 else "ok") for rank in range(4)),
    )


def empty() -> Report:
    """The least that a report can be."""
    return Report("insufficient", "Nothing was read.")


SAMPLES = {
    "never-joined": never_joined,
    "wait-cycle": wait_cycle,
    "cascade": cascade,
    "hostile": hostile,
    "healthy": healthy,
    "insufficient": insufficient,
    "slow": slow,
    "empty": empty,
}
