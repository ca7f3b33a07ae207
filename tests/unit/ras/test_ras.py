"""NCCL's RAS: what its client prints, who is behind by it, and the protocol of an emulator."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from ras_emulator import VERSIONS, emulator

from unhang.analysis import diagnose
from unhang.case import Case
from unhang.cli.main import main
from unhang.ras import GpuProcess, parse
from unhang.rasclient import ask, ask_about
from unhang.testing import FakeJob

TEXT_2_24 = """\
NCCL version 2.24.3 compiled with CUDA 12.6
CUDA runtime version 12060, driver version 12060

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         8         8   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (00000000000000aa) MISMATCH
  Communicator ranks have different collective operation counts
  7 ranks have launched up to operation 120
  Rank 5 has launched up to operation 117 -- GPU 1 managed by process 4105 on node 192.0.2.2

"""
TEXT_2_27 = TEXT_2_24.replace("2.24.3", "2.27.7").replace(
    "different collective operation", "different AllReduce operation"
)
TEXT_DEAD = """\
NCCL version 2.26.2 compiled with CUDA 12.8
Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          4            1          4        4

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1       3-4         4         4   RUNNING  INCOMPLETE

Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 4102 on node 192.0.2.1 managing GPU 2

#0-0 (00000000000000ab) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 2 -- GPU 2 managed by process 4102 on node 192.0.2.1

"""


def rank(number: int, reduces: int, gathers: int = 3, gpu: int | None = None) -> dict[str, object]:
    """One rank as the JSON has it."""
    return {
        "rank": number,
        "host": "192.0.2.1",
        "pid": 4100 + (number if gpu is None else gpu),
        "cuda_dev": number if gpu is None else gpu,
        "nvml_dev": number if gpu is None else gpu,
        "status": {"init_state": 0, "async_error": 0, "abort_flag": False},
        "collective_counts": {"Broadcast": 0, "AllGather": gathers, "AllReduce": reduces},
    }


def communicator(name: str, ranks: list[dict[str, object]], **more: object) -> dict[str, object]:
    """One communicator as the JSON has it."""
    return {"hash": name, "size": len(ranks), "ranks": ranks, "missing_ranks": [], **more}


def document(*communicators: dict[str, object]) -> str:
    """What RAS prints in JSON."""
    body = {"nccl_version": "2.28.9", "communicators": list(communicators)}
    return json.dumps({**body, "ras": {"collection_time_sec": 0.0, "timeouts_count": 0}})


@pytest.mark.parametrize("text", [TEXT_2_24, TEXT_2_27])
def test_text(text: str) -> None:
    """The one group whose ranks are not listed is all the others."""
    (found,) = parse(text).communicators
    (counts,) = found.launched.values()
    assert (found.size, counts[5], {counts[r] for r in range(8) if r != 5}) == (8, 117, {120})
    assert found.places == {5: GpuProcess("192.0.2.2", 4105, "1")}
    report = diagnose(Case(ras=(parse(text),)))
    (cause,) = report.causes
    assert (cause.code, cause.culprits, cause.confidence) == ("UH767", (5,), "medium")


def test_two_answers_with_the_same_counts() -> None:
    """One tells of launches alone; a second one shows that the others stand, too, and wait."""
    says = parse(TEXT_2_27)
    (once,), (twice,) = (diagnose(Case(ras=(says,) * n)).causes for n in (1, 2))
    assert "than its peers" in once.summary
    assert "than the ranks that wait for it" in twice.summary
    assert (once.code, twice.code, twice.culprits) == ("UH767", "UH101", (5,))


def test_a_process_that_nccl_has_given_up() -> None:
    """It is named, whatever the others have launched."""
    (found,) = parse(TEXT_DEAD).communicators
    assert (found.missing, found.dead) == ((2,), (2,))
    (cause,) = diagnose(Case(ras=(parse(TEXT_DEAD),))).causes
    assert (cause.code, cause.culprits) == ("UH103", (2,))
    assert "does not answer" in cause.summary


def test_json_of_a_rank_that_is_behind() -> None:
    """Pasted text may stand around it."""
    text = "$ ncclras -f json\n" + document(
        communicator("0xa", [rank(n, 5 if n == 1 else 9) for n in range(4)])
    )
    (cause,) = diagnose(Case(ras=(parse(text),))).causes
    assert (cause.code, cause.culprits, cause.op) == ("UH767", (1,), "AllReduce")
    assert [subject.pid for subject in cause.subjects] == [4101]


def test_who_is_behind_and_waits_elsewhere_is_a_victim() -> None:
    """Rank 0 has not come to the world's call, since it waits for rank 1 in that of their pair."""
    world = communicator("0xa", [rank(n, 9 if n > 1 else 7) for n in range(4)])
    pair = communicator("0xb", [rank(0, 5, gpu=0), rank(1, 2, gpu=1)])
    (cause,) = diagnose(Case(ras=(parse(document(world, pair)),))).causes
    assert cause.culprits == (1,)


def one_behind(first: int) -> str:
    """Rank 1 of four is one call behind the others, who have made so many."""
    ranks = [rank(n, first - 1 if n == 1 else first) for n in range(4)]
    return document(communicator("0xa", ranks))


def test_one_call_apart_is_what_a_job_that_moves_shows() -> None:
    """By NVIDIA's page on RAS; a second answer tells whether it stands, or moved."""
    once = parse(one_behind(9))
    report = diagnose(Case(ras=(once,)))
    assert (report.status, report.culprits) == ("insufficient", ())
    assert "rank 1 is no further behind" in report.summary
    assert diagnose(Case(ras=(once, once))).culprits == (1,)
    assert diagnose(Case(ras=(once, parse(one_behind(12))))).culprits == ()


def test_the_page_of_nvidia_names_nobody() -> None:
    """26 ranks at 6650 and 6 at 6649: no cause for concern."""
    text = TEXT_2_24.replace("7 ranks", "6 ranks").replace("operation 117", "operation 119")
    listed = "  Rank 6 has launched up to operation 119 -- GPU 2 managed by process 1 on node n\n"
    report = diagnose(Case(ras=(parse(text.rstrip() + "\n" + listed),)))
    assert (report.status, report.culprits) == ("insufficient", ())


NO_COMMA = """{
  "nccl_version": "2.28.9",
  "communicators": [{
    "hash": "0x1a2b", "size": 4, "ranks_count": 3, "missing_ranks_count": 1,
    "ranks": [{"rank": 0, "host": "n1", "pid": 1, "cuda_dev": 0, "nvml_dev": 0}],
    "missing_ranks": [
      {
        "rank": 2,
        "host": "n2",
        "pid": 3,
        "cuda_dev": 0,
        "nvml_dev": 0
        "status": {
          "unresponsive": true,
          "considered_dead": true
        }
      }
    ]
  }],
  "ras": {"timeouts_count": 0}
}
"""


def test_json_that_lacks_a_comma(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """NCCL 2.28.9 leaves it out exactly where ranks are missing; that it was put in is noted."""
    (tmp_path / "ras.json").write_text(NO_COMMA)
    assert main(["diagnose", "--ras", str(tmp_path / "ras.json"), "--format", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["findings"][0]["culprits"] == [2]
    assert "NCCL 2.28.9 omits" in report["notes"][0]["text"]


def test_a_dead_process_of_which_nothing_tells_the_rank() -> None:
    """The end of an answer, as people paste it: the process is told, and no rank."""
    text = TEXT_DEAD[TEXT_DEAD.index("DEAD") :]
    (cause,) = diagnose(Case(ras=(parse(text[: text.index("#0-0")]),))).causes
    assert (cause.code, cause.culprits) == ("UH768", ())
    assert [(subject.host, subject.pid) for subject in cause.subjects] == [("192.0.2.1", 4102)]


def test_a_process_of_several_gpus_is_dead_for_all_its_ranks() -> None:
    """DEAD lists all its GPUs, each rank has one of them."""
    text = TEXT_DEAD.replace("managing GPU 2", "managing GPUs 2,3")
    assert parse(text).communicators[0].dead == (2,)


def test_an_answer_without_a_communicator() -> None:
    """It is said, not that none of them differs."""
    says = parse("RAS Monitor Mode - watching for peer changes (Ctrl+C to exit)...")
    assert "it reports no communicator" in diagnose(Case(ras=(says,))).summary


EVENTS = """\
RAS Monitor Mode - watching for peer changes (Ctrl+C to exit)...
================================================================
[2026-01-09 13:06:58] PEER_UNRESPONSIVE: Process 4101 on node 192.0.2.1 managing GPU 1
[2026-01-09 13:07:07] PEER_DEAD: Process 4102 on node 192.0.2.1 managing GPU 2
"""
EVENTS_JSON = "\n".join(
    json.dumps({
        "timestamp": "2026-01-09 13:07:07", "group": "LIFECYCLE", "event": event,
        "peer": {"host": "192.0.2.1", "pid": pid, "cuda_devs": [gpu], "nvml_devs": [gpu]},
    }, indent=2)
    for event, pid, gpu in (("PEER_UNRESPONSIVE", 4101, 1), ("PEER_DEAD", 4102, 2))
)  # fmt: skip


@pytest.mark.parametrize("text", [EVENTS, EVENTS_JSON])
def test_events_of_monitor_mode(text: str) -> None:
    """Who is given up is dead; who only does not answer yet may come back."""
    assert parse(text).dead == (GpuProcess("192.0.2.1", 4102, "2"),)
    (cause,) = diagnose(Case(ras=(parse(text),))).causes
    assert (cause.code, cause.culprits) == ("UH768", ())


def test_ranks_that_differ_in_order_name_nobody() -> None:
    """Each side has launched one more of something: that is no lateness."""
    ranks = [rank(0, 9, 3), rank(1, 8, 4)]
    report = diagnose(Case(ras=(parse(document(communicator("0xa", ranks))),)))
    assert (report.status, report.causes) == ("insufficient", ())


def test_level_counts_are_no_health() -> None:
    """All launched the same: whether they have finished it RAS does not tell."""
    ranks = [rank(n, 9) for n in range(4)]
    report = diagnose(Case(ras=(parse(document(communicator("0xa", ranks))),)))
    assert (report.status, report.findings[0].code) == ("insufficient", "UH901")


def test_beside_dumps_it_confirms() -> None:
    """And a job whose dumps show it moving is not called stuck for a rank that is late just now."""
    says = parse(document(communicator("0xa", [rank(n, 2 if n == 1 else 3) for n in range(4)])))
    job = FakeJob(4)
    for _ in range(2):
        job.call(range(4))
    healthy = job.case()
    job.call((0, 2, 3), finished=False)
    for case, culprits in ((job.case(), (1,)), (healthy, ())):
        report = diagnose(with_ras(case, says))
        assert report.culprits == culprits
    assert "NCCL RAS" in " ".join(diagnose(with_ras(job.case(), says)).causes[0].evidence)


def with_ras(case: Case, status: object) -> Case:
    """A case with an answer of RAS."""
    from dataclasses import replace

    return replace(case, ras=(status,))  # type: ignore[arg-type]  # the caller's


@pytest.mark.parametrize("text", ["", "hello", "{}", '{"communicators": 3}', "[" * 9999])
def test_what_is_none_of_it(text: str) -> None:
    """One clear error."""
    with pytest.raises(ValueError, match=r"RAS|JSON|nest"):
        parse(text)


def test_diagnose_reads_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By itself, and wrong files are a sentence."""
    (tmp_path / "ras.txt").write_text(TEXT_2_27)
    assert main(["diagnose", "--ras", str(tmp_path / "ras.txt")]) == 1
    assert "Rank 5 has launched fewer AllReduce calls" in " ".join(capsys.readouterr().out.split())
    (tmp_path / "other.txt").write_text("nothing of it")
    assert main(["diagnose", "--ras", str(tmp_path / "other.txt")]) == 3
    assert "is not of NCCL's RAS" in capsys.readouterr().err
    assert main(["diagnose", "--ras", str(tmp_path / "none.txt")]) == 3


# ------------------------------------------------------------------ the protocol


@pytest.mark.parametrize("knows_json", [True, False])
def test_asking(*, knows_json: bool) -> None:
    """JSON where the version has it, text otherwise."""
    ranks = [rank(n, 9) for n in range(2)]
    answer = document(communicator("0xa", ranks)) if knows_json else TEXT_2_27
    with emulator(answer, knows_json=knows_json) as (address, heard):
        assert ask(address) == answer
    assert heard == ["CLIENT PROTOCOL 2", "SET FORMAT json", "VERBOSE STATUS"]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_asked_and_understood(version: str) -> None:
    """Counts of all operations together, by operation, and JSON: rank 5 is behind in each."""
    by_operation, knows_json = VERSIONS[version]
    text = (TEXT_2_27 if by_operation else TEXT_2_24).replace("2.27.7", version)
    if knows_json:
        text = document(communicator("0xaa", [rank(n, 117 if n == 5 else 120) for n in range(8)]))
    with emulator(text, knows_json=knows_json) as (address, _):
        says = parse(ask(address))
    (cause,) = diagnose(Case(ras=(says,))).causes
    assert (cause.code, cause.culprits) == ("UH767", (5,))
    assert cause.op == ("AllReduce" if by_operation else None)


@pytest.mark.parametrize("ours", [True, False])
def test_asking_about_a_job(monkeypatch: pytest.MonkeyPatch, *, ours: bool) -> None:
    """What answers for processes of another job is left out."""
    answer = document(communicator("0xa", [rank(n, 9) for n in range(2)]))
    with emulator(answer, knows_json=True) as (address, _):
        monkeypatch.setenv("NCCL_RAS_ADDR", address)
        assert ask_about({4101 if ours else 1 << 30}) == (answer if ours else "")


def test_who_listens_need_not_be_named() -> None:
    """The text names only those who differ, and they may be on other machines."""
    with emulator(TEXT_2_27, knows_json=False) as (address, _):
        assert ask_about({os.getpid()}, address) == TEXT_2_27
    with emulator(TEXT_2_27, knows_json=False) as (address, _):
        assert not ask_about({1 << 30}, address)


def test_nobody_answers() -> None:
    """An error of the system, at once."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(OSError, match="refused"):
        ask(f"127.0.0.1:{port}", limit_s=5)
