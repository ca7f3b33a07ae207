"""Verdicts on dumps that the real ProcessGroupNCCL wrote, see tests/data/nccl/README.md."""

from __future__ import annotations

import os
import pickle
import tarfile
from pathlib import Path

import pytest

from lab.score.adapters import verdict_of
from lab.score.captures import real_cases
from lab.score.verdict import disagreements
from lab.truth import Truth
from unhang.analysis import diagnose
from unhang.analysis.steps import situation_of
from unhang.ingest import load
from unhang.report import to_json

DATA = Path(__file__).parents[2] / "data" / "nccl"
CASES = [
    pytest.param(path, truth, id=str(path.relative_to(DATA))) for path, truth in real_cases(DATA)
]


def test_all_captures_are_there() -> None:
    """No archive is without its truth."""
    assert len(CASES) == len(list(DATA.glob("*/*.tar.gz"))) > 112


@pytest.mark.parametrize(("path", "truth"), CASES)
def test_verdicts_on_real_dumps(path: Path, truth: Truth) -> None:
    """The right code and exactly the right ranks; in a job that moves, nobody."""
    assert disagreements(truth, verdict_of(to_json(diagnose(load(path))))) == []


def unfinished_only(path: Path, folder: Path, later_s: float = 0.0) -> None:
    """Write dumps as TORCH_INCLUDE_ONLY_ACTIVE makes them: what has a time of completion is out.

    Args:
        path: Captured dumps.
        folder: Where to write them.
        later_s: So much later than they were written.
    """
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            data = archive.extractfile(member)
            assert data is not None
            dump = pickle.loads(data.read())  # noqa: S301 - ours
            kept = [e for e in dump["entries"] if not e["time_discovered_completed_ns"]]
            file = folder / Path(member.name).name
            file.write_bytes(pickle.dumps({**dump, "entries": kept}, protocol=2))
            os.utime(file, (member.mtime + later_s, member.mtime + later_s))


_LOST_WITH_FINISHED_CALLS = (
    "enqueue_hangs",  # the call that looks finished
    "far_ahead", "slow_device",  # how long such calls usually take
    "interleaved_moving", "remote_error",  # the same: see below
    "moving_apart", "moving_uneven",  # when calls were made
    "gather_roots", "scatter_wrong_op",  # members that have come out
    "dtype_ended", "op_ended", "size_ended",  # calls that ended although they did not fit
    "skipped_recv", "skipped_send", "pipeline_skip", "extra_in_order",  # the program's order
    "extra_exchange", "sends_more",  # how often each line was called
    "healthy_all", "uneven_stall",  # what kind of call a counter counts
)  # fmt: skip
_SHOWN_LATER = ("call_never_ends", "device_stops", "kernel_hangs")
"""Hosts ran ahead: how long they have been in a call shows once no host runs so far ahead."""


@pytest.mark.parametrize(
    ("path", "truth"),
    [
        case
        for case in CASES
        if case.id and case.id.startswith("2.13.0/")
        if not case.id.removeprefix("2.13.0/").startswith(_LOST_WITH_FINISHED_CALLS)
    ],
)
def test_verdicts_on_what_dumps_of_unfinished_calls_keep(
    path: Path, truth: Truth, tmp_path: Path
) -> None:
    """The same verdict from unfinished calls alone, where these can tell."""
    later_s = 30 if path.name.startswith(_SHOWN_LATER) else 0
    unfinished_only(path, tmp_path, later_s)
    assert disagreements(truth, verdict_of(to_json(diagnose(load(tmp_path))))) == []


@pytest.mark.parametrize("name", ["device_stops", "far_ahead", "kernel_hangs"])
def test_unfinished_calls_of_hosts_that_ran_ahead(name: str, tmp_path: Path) -> None:
    """A slow device and a stopped one look the same: each call may be the next for a moment."""
    unfinished_only(DATA / "2.13.0" / f"{name}-asked.tar.gz", tmp_path)
    report = diagnose(load(tmp_path))
    assert (report.status, report.causes) == ("insufficient", ())
    assert "ahead" in report.summary


def test_two_roots_show_in_unfinished_calls(tmp_path: Path) -> None:
    """Members that have come out of the gather are left out; two are in it, each as its root."""
    unfinished_only(DATA / "2.13.0" / "gather_roots-asked.tar.gz", tmp_path)
    causes = diagnose(load(tmp_path)).causes
    assert [(f.code, f.op, f.culprits) for f in causes] == [("UH204", "gather", ())]


@pytest.mark.parametrize(
    "name", ["interleaved_moving-asked", "remote_error-asked", "remote_error-pipe"]
)
def test_unfinished_calls_alone_of_a_host_that_went_on(name: str, tmp_path: Path) -> None:
    """A moment after the newest call: a job that moves and one that just stopped look the same."""
    unfinished_only(DATA / "2.13.0" / f"{name}.tar.gz", tmp_path)
    report = diagnose(load(tmp_path))
    assert (report.status, report.causes) == ("insufficient", ())


@pytest.mark.parametrize("prefix", ["comm_lib", "nccl"])
def test_an_emptied_dump_is_of_the_recorder_that_its_peers_calls_name(
    prefix: str, tmp_path: Path
) -> None:
    """The rank that stalls has no unfinished call: its file names no backend, and is its dump."""
    unfinished_only(DATA / "2.15.0" / "coalesced_late-asked.tar.gz", tmp_path)
    for file in list(tmp_path.iterdir()):  # named and marked as torch's main branch does
        dump = {**pickle.loads(file.read_bytes()), "comm_lib_version": "2.30.4"}  # noqa: S301
        data = pickle.dumps(dump, 2)
        name = file.name.replace("nccl", prefix)
        file.unlink()
        file.with_name(name).write_bytes(data)
    case = load(tmp_path)
    assert {dump.backend for dump in case.dumps if dump.start == dump.stop} == {"nccl2"}
    report = diagnose(case)
    assert [(f.code, f.culprits) for f in report.causes] == [("UH101", (3,))]


@pytest.mark.parametrize(
    ("name", "seconds"),
    [("slow_rank-pipe", (0, 1)), ("stall_host-pipe", (5, 9)), ("stall_host-timeout", (15, 18))],
)
def test_dumps_with_timing_show_when_they_were_made(name: str, seconds: tuple[int, int]) -> None:
    """The device is asked at the dump: a call that runs carries that moment as its start."""
    situation, _ = situation_of(load(DATA / "2.13.0-timing" / f"{name}.tar.gz"))
    waited = [age / 1e9 for age in situation.ages.waited_ns.tolist() if age >= 0]
    assert len(waited) == 3  # the fourth has not started a call, or makes none
    assert all(seconds[0] <= age < seconds[1] for age in waited)


def test_a_call_that_finished_at_the_dump_shows_it_too() -> None:
    """Finished, not retired: rank 3 had made its next call 7 ms before."""
    situation, _ = situation_of(load(DATA / "2.9.1" / "slow_rank-pipe.tar.gz"))
    assert [age >= 0 for age in situation.ages.waited_ns.tolist()] == [False, False, False, True]


@pytest.mark.parametrize("version", ["2.9.1", "2.12.0", "2.13.0-timing"])
def test_a_slow_job_that_was_dumped_in_mid_flight(version: str) -> None:
    """Its open calls are no older than usual, or the job has finished them since: none is stuck."""
    report = diagnose(load(DATA / version / "slow_rank-pipe.tar.gz"))
    assert (report.status, report.causes) == ("healthy", ())


def test_a_host_inside_the_library_is_not_past_its_call() -> None:
    """Torch dumps such a call as completed: its event was never recorded. The counters tell."""
    report = diagnose(load(DATA / "2.13.0" / "enqueue_hangs-pipe.tar.gz"))
    assert [(f.code, f.culprits) for f in report.findings][:1] == [("UH104", (2,))]


def test_an_uneven_gather_is_not_believed_to_have_ended() -> None:
    """From torch 2.8 on its closing entry says "completed" before the last member has come."""
    situation, _ = situation_of(load(DATA / "2.13.0" / "uneven_stall-pipe.tar.gz"))
    evidence = situation.evidence
    names = {evidence.case.names[evidence.case.calls.name[row]].op for row in evidence.open_rows}
    assert names == {"_broadcast_oop", "ALLGATHER_coalesced"}
