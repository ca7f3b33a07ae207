"""Cores that are broken: a sentence, and never anything else.

The core in tests/data was written by the kernel when a `sleep` with RANK=3 got SIGSEGV; of its
memory only the place of the environment was kept.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from mutants import mutants

from unhang.cores.elfcore import CoreFacts, read_facts
from unhang.cores.judging import judge_cores
from unhang.cores.reading import CoreReading
from unhang.errors import InputError
from unhang.model import Frame, ProcessSample, ThreadStack

pytest.importorskip("elftools")

CORE = Path(__file__).parents[2] / "data" / "cores" / "sleep-segv.core"


def test_a_core_of_the_kernel_tells_signal_and_rank() -> None:
    """From its notes, and from the environment in its memory."""
    facts = read_facts(CORE)
    assert (facts.signal, facts.rank, facts.program) == (11, 3, "sleep")
    assert facts.environment == {"RANK": "3", "WORLD_SIZE": "4"}


def test_a_note_whose_name_does_not_end(tmp_path: Path) -> None:
    """Pyelftools raises an error of another family than its own for this one."""
    core = tmp_path / "core"
    core.write_bytes(CORE.read_bytes().replace(b"CORE\0\0\0\0", b"COREXXXX"))
    with pytest.raises(InputError, match="cannot be read as a core file"):
        read_facts(core)


def test_mutants_of_a_core_are_read_or_refused(tmp_path: Path) -> None:
    """And what is read can be judged; a core alone never makes anything healthy."""
    core = tmp_path / "core"
    for data in mutants(CORE.read_bytes(), 300):
        core.write_bytes(data)
        try:
            facts = read_facts(core)
        except InputError:
            continue
        sample = ProcessSample(rank=facts.rank, host="", pid=facts.pid)
        report = judge_cores([CoreReading("core", facts, sample)])
        assert report.status in ("problem", "insufficient")


@pytest.mark.parametrize("text", ["", "-1", "9" * 40, "x", "\u0664"])
def test_a_rank_that_is_none(text: str) -> None:
    """The environment in a core is from outside."""
    assert CoreFacts(environment={"RANK": text}).rank == -1


def test_cores_that_tell_the_same_are_told_once() -> None:
    """By what each tells, over ranks; of processes without a rank the number is said."""
    frames = (Frame("step", "/home/user/train.py", 7),)

    def core(pid: int, rank: str = "") -> CoreReading:
        facts = CoreFacts(signal=11, pid=pid, environment={"RANK": rank} if rank else {})
        thread = ThreadStack("main", pid, frames, is_main=True)
        sample = ProcessSample(rank=facts.rank, host="", pid=pid, threads=(thread,))
        return CoreReading(f"core.{pid}", facts, sample)

    does = "crashed with SIGSEGV in step below step at /home/user/train.py:7."
    for cores, who, culprits in (
        ([core(1, "1"), core(3, "3")], "Ranks 1,3", (1, 3)),
        ([core(9), core(1, "1")], "Rank 1", (1,)),
        ([core(8), core(9)], "2 processes", ()),
        ([core(8)], "Process 8 (unknown program)", ()),
    ):
        (found,) = judge_cores(cores).findings
        assert (found.summary, found.culprits) == (f"{who} {does}", culprits)
        assert len(found.evidence) == len(found.subjects) == len(cores)
