"""What other recorders than NCCL's own mean by their states: torch's hook, MPI, torchcomms.

Shapes of dumps as torch 2.15 (hook) and torchcomms at 59426ba write them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from makedumps import T0, dump, entry, write

from unhang.analysis import diagnose
from unhang.analysis.steps import situation_of
from unhang.case import AT_ISSUE, BY_HOOK, BY_TORCHCOMMS
from unhang.ingest import load
from unhang.ingest.columns.dictionaries import parse_op
from unhang.model import OpName
from unhang.report import Report

MS = 1_000_000
RANKS = range(4)


class Hook:
    """Entries of one rank as torch's hook makes them; time goes on by 5 ms a call."""

    def __init__(self, rank: int, backend: str = "nccl2") -> None:
        self.rank, self.backend, self.rows = rank, backend, list[Any]()
        self.seq = self.p2p = 0

    def call(self, op: str = "all_reduce", *, took: int | None = MS, **changes: Any) -> Hook:  # noqa: ANN401 - JSON
        """A collective; `took` is None for one that has not ended."""
        self.seq += 1
        return self._add(op, took, **changes)

    def send(self, peer: int, took: int | None = 2000) -> Hook:
        """A send; by default as a member of a batch."""
        return self._exchange(f"send {self.rank}->{peer}", took)

    def recv(self, peer: int | str, took: int | None = 2000) -> Hook:
        """A receive; "?" for one from any source."""
        return self._exchange(f"recv {self.rank}<-{peer}", took)

    def ring(self) -> Hook:
        """A batch of a send to the next rank and a receive from the one before."""
        return self.send((self.rank + 1) % 4).recv((self.rank - 1) % 4)

    def _exchange(self, op: str, took: int | None) -> Hook:
        self.p2p += 1
        return self._add(op, took, is_p2p=True)

    def _add(self, op: str, took: int | None, **changes: Any) -> Hook:  # noqa: ANN401 - JSON
        number = len(self.rows)
        made = T0 + number * 5 * MS
        ended = made + took if took is not None else None
        row = {
            "profiling_name": f"{self.backend}:{op}",
            "collective_seq_id": self.seq, "p2p_seq_id": self.p2p, "op_id": number,
            "time_created_ns": made, "time_discovered_started_ns": ended,
            "time_discovered_completed_ns": ended, "retired": ended is not None,
            "state": "scheduled" if ended is None else "completed",
        }  # fmt: skip
        self.rows.append(entry(number, **{**row, **changes}))
        return self

    def dump(self, since: int = 0) -> dict[str, Any]:
        """The dump: counters are in op_id, from 0."""
        done = sum(each["state"] == "completed" for each in self.rows) - 1
        counters = {"last_enqueued_collective": len(self.rows) - 1, "last_started_collective": -1,
                    "last_completed_collective": done}  # fmt: skip
        return dump(self.rows[since:], pg_status={"0": counters})


def verdict(tmp_path: Path, *ranks: Hook, since: int = 0) -> Report:
    """The report on the dumps of these ranks."""
    files = {f"rank_{each.rank}": each.dump(since) for each in ranks}
    return diagnose(load(write(tmp_path, files)))


def told(report: Report) -> list[tuple[str, tuple[int, ...]]]:
    """Codes and culprits of the causes."""
    return [(finding.code, finding.culprits) for finding in report.causes]


def test_a_dump_shows_which_recorder_wrote_it(tmp_path: Path) -> None:
    """Its version says "2.10" whoever wrote it."""
    hook = Hook(0).call().call(took=None)
    files = {"hook/rank_0": hook.dump(), "nccl/rank_0": dump(3)}
    marks = {d.source.split("/")[-2]: d.recorder for d in load(write(tmp_path, files)).dumps}
    assert marks == {"hook": BY_HOOK, "nccl": ""}


def test_a_member_of_a_batch_that_nothing_meets_has_not_ended(tmp_path: Path) -> None:
    """Rank 2 never made the third exchange: its peers' members read completed all the same."""
    ranks = [Hook(rank).call().ring().call().ring().call() for rank in RANKS]
    for hook in ranks:
        if hook.rank != 2:
            hook.ring()
    assert told(verdict(tmp_path, *ranks)) == [("UH302", (2,))]


def test_a_skipped_send_of_a_batch_is_told_by_counting(tmp_path: Path) -> None:
    """All are in the next collective, whose device waits for the receive of rank 2."""
    ranks = [Hook(rank).call().ring().call() for rank in RANKS]
    for hook in ranks:
        hook.recv(0).call(took=None) if hook.rank == 1 else hook.ring().call(took=None)
    assert told(verdict(tmp_path, *ranks)) == [("UH302", (1,))]


def test_a_window_counts_from_the_last_collective_that_both_have_finished(tmp_path: Path) -> None:
    """The buffer has lost the first calls, of each rank as many sends as receives."""
    ranks = [Hook(rank).call().ring().ring().call() for rank in RANKS]
    for hook in ranks:
        hook.recv(0).call(took=None) if hook.rank == 1 else hook.ring().call(took=None)
    report = verdict(tmp_path, *ranks, since=4)
    assert told(report) == [("UH301", ())]  # not whole: that rank 1 made no send is presumed
    assert report.causes[0].victims == tuple(RANKS)


def test_exchanges_that_all_have_made_are_no_proof_of_an_end(tmp_path: Path) -> None:
    """Their devices may wait for each other for ever; nothing would show it."""
    ranks = [Hook(rank).call().ring() for rank in RANKS]
    report = verdict(tmp_path, *ranks)
    assert (report.status, [f.code for f in report.findings]) == ("insufficient", ["UH901"])


def test_exchanges_before_a_finished_collective_have_ended(tmp_path: Path) -> None:
    """A send into the void before it, too: the device came past it."""
    ranks = [Hook(rank).call().ring().call() for rank in RANKS]
    ranks[0] = Hook(0).call().ring().send(1).call()
    assert verdict(tmp_path, *ranks).status == "healthy"
    ranks = [each.ring().call(took=None) for each in ranks]
    assert told(verdict(tmp_path, *ranks)) == [("UH401", ())]


def test_receives_from_any_source_are_not_counted_against_anyone(tmp_path: Path) -> None:
    """`recv 1<-?` may be what meets the send of rank 0."""
    assert parse_op("nccl2:recv 1<-?") == OpName("nccl2:recv 1<-?", "nccl2", "recv", -1, 1)
    ranks = [Hook(0).call().send(1), Hook(1).call().recv("?")]
    assert told(verdict(tmp_path, *ranks)) == []


def test_counters_in_op_id_are_not_compared_with_sequence_numbers(tmp_path: Path) -> None:
    """From 0: a call that was launched looks as if it had not been."""
    ranks = [Hook(rank).call().call(took=None) for rank in RANKS]
    ranks[3].call(took=None)
    assert "UH104" not in [finding.code for finding in verdict(tmp_path, *ranks).findings]


def test_lists_and_one_tensor_gather_the_same(tmp_path: Path) -> None:
    """`all_gather` keeps a tensor a rank, `_all_gather_base` all in one."""
    whole, parts = [[16]], [[4]] * 4
    ranks = [
        Hook(0).call().call("all_gather", took=None, input_sizes=[[4]], output_sizes=parts),
        *(Hook(rank).call().call("_all_gather_base", took=None, input_sizes=[[4]],
                                 output_sizes=whole) for rank in RANKS[1:]),
    ]  # fmt: skip
    codes = [finding.code for finding in verdict(tmp_path, *ranks).findings]
    assert not [code for code in codes if code.startswith("UH2")]


def test_a_backend_may_have_colons_in_its_name(tmp_path: Path) -> None:
    """The operation is what stands right of the last one."""
    assert parse_op("my:plugin:send 0->1") == OpName(
        "my:plugin:send 0->1", "my:plugin", "send", 0, 1
    )
    ranks = [Hook(rank, "my:plugin").call().call(took=None) for rank in RANKS[:3]]
    report = verdict(tmp_path, *ranks, Hook(3, "my:plugin").call())
    assert told(report) == [("UH101", (3,))]


def at_issue(rank: int, calls: int, op: str = "all_reduce") -> Hook:
    """A rank on MPI: the hook retires each call as it is issued and hears no more of it."""
    hook = Hook(rank, "mpi")
    for _ in range(calls):
        hook.call(op, took=None, retired=True)
    return hook


@pytest.mark.parametrize("calls", [4, 20])
def test_a_recorder_without_ends_shows_who_made_what(calls: int, tmp_path: Path) -> None:
    """What all have made may be over; the call that one lacks is not."""
    ranks = [at_issue(rank, calls - (rank == 2)) for rank in RANKS]
    report = verdict(tmp_path, *ranks)
    assert told(report) == [("UH101", (2,))]
    assert load(tmp_path).dumps[0].recorder == AT_ISSUE


def test_a_recorder_without_ends_cannot_show_health(tmp_path: Path) -> None:
    """All have made the same calls: over, or hanging."""
    report = verdict(tmp_path, *(at_issue(rank, 12) for rank in RANKS))
    assert (report.status, told(report)) == ("insufficient", [])


def test_a_recorder_without_ends_says_nothing_of_a_broadcast(tmp_path: Path) -> None:
    """Its source may be done before anybody else comes."""
    ranks = [at_issue(rank, 12 - (rank > 0), "broadcast") for rank in RANKS]
    assert told(verdict(tmp_path, *ranks)) == []


def test_what_torchcomms_has_retired_is_finished(tmp_path: Path) -> None:
    """It asks for the end once, as it retires a call: "started" stays."""
    rows = [
        entry(i, group=("main_comm", "ncclx"), profiling_name="ncclx:all_reduce", op_id=i,
              collective_seq_id=i, state="started", time_discovered_started_ns=T0 + i,
              time_discovered_completed_ns=None, retired=True, duration_ms=1.5)
        for i in range(6)
    ]  # fmt: skip
    config = {"main_comm": {"name": "main_comm", "desc": "ncclx", "ranks": "[0, 1, 2, 3]"}}
    plain = dump(rows, pg_config=config, pg_status={})
    case = load(write(tmp_path, {f"rank_{rank}": plain for rank in RANKS}))
    assert {each.recorder for each in case.dumps} == {BY_TORCHCOMMS}
    assert diagnose(case).status == "healthy"


def test_an_end_that_is_noticed_late_is_no_hang(tmp_path: Path) -> None:
    """The hook looks once a second: a call of 1.5 s is in flight."""
    ranks = [Hook(rank).call(took=None) for rank in RANKS]
    made = T0 + 1500 * MS
    files = {
        f"rank_{h.rank}": {**h.dump(), "unhang": {"rank": h.rank, "time_ns": made}} for h in ranks
    }
    files = {
        name: {**each, "entries": [entry(0, **each["entries"][0])]} for name, each in files.items()
    }
    situation, _ = situation_of(load(write(tmp_path, files)))
    assert situation.ages.young.all()


@pytest.mark.parametrize(("counted", "refused"), [(5, False), (1_000_000, True)])
def test_counters_far_above_a_complete_window_are_refused(
    counted: int, *, refused: bool, tmp_path: Path
) -> None:
    """Rank 3 shows all of its three calls; its counters would let it have made a million."""
    own = {"last_started_collective": -1, "last_completed_collective": 3}
    files = {
        f"rank_{rank}": dump(
            [*(entry(i) for i in range(3)), entry(3, state="scheduled", retired=False,
                                                 time_discovered_completed_ns=None)]
        )
        for rank in RANKS[:3]
    }  # fmt: skip
    files["rank_3"] = dump(3, pg_status={"0": {**own, "last_enqueued_collective": counted}})
    case = load(write(tmp_path, files))
    assert any("are refused" in note.text for note in case.notes) == refused
    assert (told(diagnose(case)) == [("UH101", (3,))]) == refused
