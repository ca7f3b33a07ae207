"""What torch prints of waits and time-outs, as its sources from 2.0 to 2.13 hold it."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_fuzz import judged

from unhang.logs.files import find_logs
from unhang.logs.lines.anchors import wanted_by
from unhang.logs.scan import scan_logs

SOCKET = "SocketImpl(fd=5, addr=[node01]:47152, remote=[node01]:29500)"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 4000 ms", "UH718"),
        (
            "[Rank 0]: Rank 1 successfully reached monitoredBarrier, but received errors while",
            "UH716",
        ),
        ("Rank 1 timed out in monitoredBarrier after 4000 ms", "UH7042"),
        ("TCP client failed to connect/validate to host n1:29500 - timed out (try=3, ti", "UH733"),
        ("TCP client failed to connect/validate to host n1:29500 - retrying (try=0, ti", "UH7044"),
        ("The client socket has failed to connect to any network address of (n1, 29500).", "UH733"),
        (
            "The client socket has failed to connect to [n1]:29500 (errno: 111 - Connection",
            "UH7044",
        ),
        (
            "The client socket has timed out after 60000ms while trying to connect to (n1, 1).",
            "UH733",
        ),
        ("server socket has failed to listen on x. port: 1, code: -98, name: EADDRINUSE", "UH735"),
        ("Timed out after 301 seconds waiting for clients. 1/2 clients joined.", "UH734"),
        ("barrier timeout after 300000ms, key: /barrier/0", "UH7042"),
        ("wait timeout after 300000ms, keys: /default_pg/0//cuda//0", "UH7042"),
        (f"recvValueWithTimeout failed on {SOCKET}: Failed to recv, got 0 bytes", "UH726"),
        (f"waitForInput: poll for socket {SOCKET} returned 0, likely a timeout", "UH7042"),
        (f"waitForInput: socket {SOCKET} timed out after 300000ms", "UH7042"),
        ("Received data size doesn't match expected size. Is there a distributed coll", "UH762"),
        ("[gloo/transport/tcp/pair.cc:9] Application timeout caused pair closure", "UH717"),
        ("[gloo/transport/tcp/pair.cc:9] Read timeout [10.0.0.7]:1", "UH717"),
        ("[gloo/transport/tcp/buffer.cc:9] Remote peer closed the connection.", "UH716"),
        ("[gloo/transport/tcp/pair.cc:9] Connection closed by peer [10.0.0.7]:1", "UH716"),
    ],
)
def test_what_torch_prints(line: str, code: str) -> None:
    """Each has its rule, with and without the exception that carries it."""
    for text in (line, f"RuntimeError: {line}", f"torch.distributed.DistNetworkError: {line}"):
        rule = next((rule for rule in wanted_by(text) if rule.search(text)), None)
        assert rule is not None
        assert rule.code == code


DIFFERS = (
    "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 161 params, while "
    "rank 1 has inconsistent 0 params."
)
IB_RETRY = (
    "node01:1:9 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<4711> with status=12 "
    "opcode=0 len=0 vendor err 129 (Recv)"
)
TABLE = Path(__file__).parents[2] / "data" / "logs" / "public" / "torch_waits.tsv"


def test_what_each_release_prints_of_waits() -> None:
    """Each row has the first release that is known to print it, and the rule that must know it."""
    rows = [tuple(row.split("\t")) for row in TABLE.read_text().splitlines()[1:]]
    assert {release for release, _, _ in rows} >= {"2.0", "2.2", "2.3", "2.4", "2.5", "2.7", "2.13"}
    told = {}
    for _, code, line in rows:
        rule = next((rule for rule in wanted_by(line) if rule.search(line)), None)
        told[line] = (code, rule.code if rule else "-")
    assert {line: codes for line, codes in told.items() if codes[0] != codes[1]} == {}


@pytest.mark.parametrize(
    "line",
    [
        "DistStoreError: Timed out after 1801 seconds waiting for workers. 1/2 workers joined.",
        "TimeoutError: timed out waiting for all 2 members to join",
        DIFFERS,
        IB_RETRY,
    ],
)
def test_who_waits_is_not_to_blame(line: str, tmp_path: Path) -> None:
    """Who says that others did not come, that two differ or cannot meet, is no culprit for it."""
    report = judged(tmp_path / "job.log", f"[rank0]: {line}\n".encode())
    assert report.status == "problem"
    assert report.findings[0].culprits == ()


def test_counters_of_old_releases_are_compared(tmp_path: Path) -> None:
    """Who had not enqueued the call in which others timed out is told from 2.3's words too."""
    lines = [
        f"[rank{rank}]:[E1120 06:07:00.0 ProcessGroupNCCL.cpp:1] [PG 0 Rank {rank}] Timeout at "
        f"NCCL work: 122, last enqueued NCCL work: {enqueued}, last completed NCCL work: 121."
        for rank, enqueued in ((0, 122), (1, 122), (2, 121))
    ]
    report = judged(tmp_path / "job.log", "\n".join(lines).encode() + b"\n")
    assert report.findings[0].culprits == (2,)


@pytest.mark.parametrize(
    ("group", "rank", "name"),
    [
        ("PG ID 0 PG GUID 0(default_pg) Rank 2", 2, "default_pg"),
        ("PG ID 0 PG GUID 0 Rank 2", 2, "0"),
        ("PG ID 2 PG GUID 5(mesh_ulysses) Rank 2", -1, "mesh_ulysses"),
        ("PG ID 2 PG GUID 9 Rank 2", -1, "9"),
    ],
)
def test_a_number_within_a_group_is_no_rank(
    group: str, rank: int, name: str, tmp_path: Path
) -> None:
    """Only in the default group is the number that torch prints the rank of the job."""
    path = tmp_path / "job.log"
    path.write_text(
        f"[E ProcessGroupNCCL.cpp:1785] [{group}]  failure detected by watchdog at work sequence "
        "id: 5 PG status: last enqueued work: 6, last completed work: 4\n"
    )
    (event,) = scan_logs(find_logs(path)).events
    assert event.rank == rank
    assert name in {event.fields.get(key) for key in ("desc", "desc2", "pg", "pg2")}


UNUSED = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/me/train.py", line 13, in <module>
[rank1]:     net(batch).sum().backward()
[rank1]:   File "/env/lib/python3.11/site-packages/torch/nn/parallel/distributed.py", line 1775, \
in _pre_forward
[rank1]:     if torch.is_grad_enabled() and self.reducer._rebuild_buckets():
[rank1]:                                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
[rank1]: RuntimeError: Expected to have finished reduction in the prior iteration before \
starting a new one. This error indicates that your module has parameters that were not used in \
producing loss.
[rank1]: making sure all `forward` function outputs participate in calculating loss.
[rank1]: Parameters which did not receive grad for rank 1: b.bias, b.weight
[rank1]: Parameter indices which did not receive grad for rank 1: 2 3
[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/me/train.py", line 13, in <module>
[rank0]:     net(batch).sum().backward()
[rank0]: RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] \
Connection closed by peer [127.0.0.1]:8577. This is typically caused by a remote worker crashing.
"""  # torch 2.13, two ranks of which one leaves out a layer, shortened


def test_a_number_within_the_group_of_ddp_is_no_rank(tmp_path: Path) -> None:
    """DDP counts within its own group: who raised it is told by the line, and else by nobody."""
    finding = judged(tmp_path / "job.log", UNUSED.encode()).findings[0]
    assert (finding.slug, finding.culprits) == ("unhandled-exception", (1,))
    text = UNUSED.replace("[rank1]: ", "").partition("[rank0]")[0]
    finding = judged(tmp_path / "other.log", text.encode()).findings[0]
    assert (finding.slug, finding.culprits) == ("unhandled-exception", ())


def test_a_number_within_a_communicator_is_no_rank(tmp_path: Path) -> None:
    """An aborted communicator may be a smaller group's, whose ranks have other numbers."""
    path = tmp_path / "job.log"
    aborted = "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 1."
    path.write_text(f"{aborted}\n[rank6]: {aborted}\n")
    events = scan_logs(find_logs(path)).events
    assert [(event.code, event.rank) for event in events] == [("UH714", -1), ("UH714", 6)]
