"""What was said before is counted, or made as then, without being read: the same as if it were."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from unhang.logs.files import find_logs
from unhang.logs.keeping import LogScan
from unhang.logs.repeats import Repeats
from unhang.logs.scan import scan_logs

WATCHDOG = (
    "[rank{r}]:[E1120 05:06:{s:02d}.11 ProcessGroupNCCL.cpp:616] [Rank {r}] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum={n}, OpType=ALLREDUCE, NumelIn=64) ran"
)
MIXTURE = (
    WATCHDOG,
    "[rank{r}]: torch.distributed.DistBackendError: NCCL communicator was aborted on rank {r}.",
    "[rank{r}]: RuntimeError: boom {n}",
    "[rank{r}]: 5: RuntimeError: boom",
    "[rank{r}]: {r}: RuntimeError: boom",
    "[rank{r}]: exit code: 13{d}",
    "[rank{r}]: Worker exited with exit code {d}",
    "[rank{r}]: Traceback (most recent call last):",
    '[rank{r}]:   File "train.py", line {n}, in step',
    "[rank{r}]: step {n} loss 1.5",
    "[rank{r}]:[E1120 05:06:{s:02d}.11 a.cpp:6] something that no rule knows {n}",
    "[rank{r}]: NCCL INFO NCCL version 2.2{d}.3+cuda12.9",
    "[rank{r}]: Last error:",
    "[rank{r}]:[W1120 05:06:{s:02d}.11 TCPStore.cpp:1] recvValue failed on SocketImpl(fd={n})",
    "node0{d}:{n}:{n} [0] NCCL WARN Cuda failure 'out of memory'",
    "RuntimeError: of nobody {n}",
    "  exitcode  : {d} (pid: {n})",
)


def scanned(path: Path) -> LogScan:
    """All that a scan keeps of a log."""
    return scan_logs(find_logs(path))


@pytest.mark.parametrize("seed", range(12))
def test_the_same_as_if_it_were_read(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events, counts, stamps, ranks and facts do not depend on whether lines are known again."""
    ranks = 3 if seed % 2 else 60
    chance = random.Random(seed)  # noqa: S311 - the same log each time
    path = tmp_path / "job.log"
    forms = chance.sample(MIXTURE, 9)
    lines = [
        chance.choice(forms).format(
            r=chance.randrange(ranks), s=number // 8 % 60, n=chance.randrange(40), d=number % 10
        )
        for number in range(400)
    ]
    path.write_text("\n".join(lines) + "\n")
    quick = scanned(path)
    monkeypatch.setattr(Repeats, "known", lambda *_: None)
    monkeypatch.setattr(Repeats, "alike", lambda *_: None)
    assert quick == scanned(path)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """As many items as lines were read rather than known again."""
    lines: list[int] = []
    learn = Repeats.learn

    def counted(self: Repeats, *args: object) -> None:
        lines.append(1)
        learn(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Repeats, "learn", counted)
    return lines


def test_repeats_are_known(tmp_path: Path, read: list[int]) -> None:
    """Other numbers do not make a line another one, as long as no rule looks for them."""
    path = tmp_path / "job.log"
    path.write_text("".join(f"[rank1]: RuntimeError: boom {n}\n" for n in range(10, 60)))
    (event,) = scanned(path).events
    assert event.count == 50
    assert len(read) == 1


def test_what_other_ranks_said_is_not_read_again(tmp_path: Path, read: list[int]) -> None:
    """Each rank gets a message of its own, with its own numbers."""
    path = tmp_path / "job.log"
    path.write_text("".join(f"[rank{n}]: RuntimeError: boom {n}\n" for n in range(10, 60)))
    events = scanned(path).events
    assert [(e.rank, e.text, e.fields["what"]) for e in events] == [
        (n, f"RuntimeError: boom {n}", f"boom {n}") for n in range(10, 60)
    ]
    assert len(read) == 1


@pytest.mark.parametrize(
    ("first", "second", "events"),
    [
        ("worker exited with code 139", "worker exited with code 137", 2),
        ("5: RuntimeError: boom", "6: RuntimeError: boom", 2),
        ("RuntimeError: boom 1", "RuntimeError: boom 2", 1),
    ],
)
def test_a_number_that_matters(tmp_path: Path, first: str, second: str, events: int) -> None:
    """Where a rule or a prefix looks for it, each line is read."""
    path = tmp_path / "job.log"
    path.write_text(f"[rank1]: {first}\n[rank1]: {first}\n[rank1]: {second}\n")
    assert len(scanned(path).events) == events
