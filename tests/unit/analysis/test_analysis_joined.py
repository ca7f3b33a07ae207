"""A failure in a log is the same wherever the log is read, and outranks silence in dumps."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.analysis import diagnose
from unhang.casebuilder import case_of_logs
from unhang.logs.files import find_logs
from unhang.logs.scan import LogScan, scan_logs
from unhang.testing import FakeJob

ROOTS = (
    # a line of rank 2, the code that must stand first
    ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "UH770"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0", "UH752"),
    ("OSError: [Errno 28] No space left on device: '/ckpt/rank_2.pt'", "UH776"),
    ("OSError: [Errno 116] Stale file handle: '/data/shard_0007.tar'", "UH777"),
    ("Fatal Python error: Segmentation fault", "UH782"),
    ("RuntimeError: CUDA error: an illegal memory access was encountered", "UH778"),
    ("RuntimeError: CUDA error: device-side assert triggered", "UH779"),
    ("RuntimeError: DataLoader worker (pid(s) 812) exited unexpectedly", "UH751"),
    ("RuntimeError: DataLoader worker (pid 812) is killed by signal: Bus error.", "UH750"),
    ("ValueError: batch 812 has no labels", "UH793"),
    ("MemoryError", "UH787"),
)


def scanned(tmp_path: Path, line: str) -> LogScan:
    """What a log says in which all ranks count steps, and rank 2 fails."""
    path = tmp_path / "job.log"
    steps = "".join(f"[rank{rank}]: step {step}\n" for step in range(5) for rank in range(4))
    path.write_text(f"{steps}[rank2]: {line}\n")
    return scan_logs(find_logs(path))


def job(*, dumped: bool) -> FakeJob:
    """Four ranks of which the third never calls the fifth all_reduce, and may leave no dump."""
    made = FakeJob(4)
    for _ in range(4):
        made.call(range(4), site="train.py:30 step")
    made.call([0, 1, 3], site="train.py:30 step", finished=False)
    made.missing = set() if dumped else {2}
    return made


@pytest.mark.parametrize(("line", "code"), ROOTS, ids=[row[1] for row in ROOTS])
def test_a_root_failure_is_one_verdict_everywhere(tmp_path: Path, line: str, code: str) -> None:
    """Logs alone, logs beside dumps, and beside dumps without that rank: one culprit."""
    scan = scanned(tmp_path, line)
    events = tuple(scan.events)
    reports = (
        diagnose(case_of_logs(scan)),
        diagnose(job(dumped=True).case(log_events=events)),
        diagnose(job(dumped=False).case(log_events=events)),
    )
    assert [report.findings[0].code for report in reports] == [code] * 3
    assert [report.findings[0].culprits for report in reports] == [(2,)] * 3
    assert [report.status for report in reports] == ["problem"] * 3
