"""A rank that waits for a lock whose holder waits for it is in a deadlock, and not the late one."""

from __future__ import annotations

from tests.unit.analysis.test_analysis_outside import MODULE, WAITING, sample, verdict
from unhang.model import Frame

LOCKED = (Frame("locked", "/home/user/cache.py", 10), MODULE)
HELD = {"lock": "/data/cache.lock", "wait_channel": "locks_lock_inode_wait"}
UPLOAD = (
    Frame("upload", "/home/user/upload.py", 7),
    Frame("_bootstrap", "/usr/lib/python3.11/threading.py", 995),
)


def test_the_holder_of_a_lock_that_waits_for_who_wants_it_closes_a_circle() -> None:
    """Rank 1 has it, and waits in all_reduce: no rank is late, and no time opens the circle."""
    report = verdict(sample(0, LOCKED, peer_pid=101, **HELD))
    (cause,) = report.causes
    assert (cause.code, cause.culprits, cause.victims) == ("UH301", (), (0, 1, 2))
    assert report.summary == (
        "Ranks 0-2 wait for each other: rank 1 holds the lock of cache.lock and waits in "
        "all_reduce, and rank 0 waits for that lock before they call it."
    )
    assert {(site.ranks, site.line) for site in cause.sites} == {((0,), 10), ((1,), 9)}
    assert report.decision is not None
    assert (report.decision.action, report.decision.reason) == ("fix-code", "deadlock")


def test_a_lock_of_another_program_may_come_yet() -> None:
    """Its holder is told with the rank that waits for it."""
    told = {"peer_pid": 900, "peer_command": "python hub.py", **HELD}
    report = verdict(sample(0, LOCKED, **told))
    (cause,) = report.causes
    assert (cause.code, cause.culprits) == ("UH101", (0,))
    said = "rank 0 is waiting for a file lock, cache.lock, which process 900 (python hub.py) holds"
    assert said in report.summary


def test_a_thread_of_the_holder_may_let_go_of_the_lock() -> None:
    """So the rank that waits for it is the one to look at, and nothing is proven."""
    report = verdict(sample(0, LOCKED, peer_pid=103, **HELD), sample(3, WAITING, UPLOAD))
    (cause,) = report.causes
    assert (cause.code, cause.culprits) == ("UH101", (0,))
    assert "cache.lock, which rank 3 holds" in report.summary
