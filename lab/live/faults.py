"""The table of live faults: which script, how many ranks, and which verdicts are right.

A verdict is right by what the evidence can show, decided here before any analysis has looked: a
rank that was killed leaves no dump, so naming it as silent is right, and with Gloo, whose sends and
receives torch does not record, "no call is in flight" is the truth about a dump of a P2P hang.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

JOBS = Path(__file__).parent / "jobs"

Who: TypeAlias = Callable[[int, int], tuple[int, ...]]
"""Which ranks, given the number of ranks and the odd one."""

Ending: TypeAlias = Literal["", "killed", "stopped", "aborted"]
"""What becomes of a process: nothing, the odd rank is killed or stopped, or somebody aborts."""


def the_odd_one(_world: int, odd: int) -> tuple[int, ...]:
    """The rank with the fault."""
    return (odd,)


def nobody(_world: int, _odd: int) -> tuple[int, ...]:
    """No rank: nothing is wrong, or no single rank is at fault."""
    return ()


def the_first(_world: int, _odd: int) -> tuple[int, ...]:
    """Rank 0, which in this job has another part than the others."""
    return (0,)


def last_of_each_half(world: int, _odd: int) -> tuple[int, ...]:
    """The last rank of the first half and of the second."""
    return (world // 2 - 1, world - 1)


@dataclass(frozen=True, slots=True)
class Expected:
    """One right verdict.

    Attributes:
        status: The report's status.
        codes: The finding that carries the verdict has one of these.
        culprits: Who is named, exactly.
        casualties: The process that aborted is named instead; it need not be the odd rank, so
            confidence must not be high.
        nobody_waits: This is what is right where every survivor had an error already, so that no
            dump shows anybody waiting.
    """

    status: str
    codes: tuple[str, ...]
    culprits: Who
    casualties: bool = False
    nobody_waits: bool = False


@dataclass(frozen=True, slots=True)
class LiveFault:
    """One job that can be run.

    Attributes:
        name: As on the command line.
        script: File in `jobs/`.
        meaning: One sentence for lists and READMEs.
        expected: The right verdicts, best first.
        ranks: Processes unless told otherwise; must be a multiple of `multiple_of` and at least
            `at_least`.
        odd: The rank with the fault unless told otherwise; at least `odd_from`.
        odd_matters: False where the fault has no single rank.
        ending: What becomes of processes.
        armed: unhang's own recorder is armed in the job, as `unhang run` does it.
        environ: What the script and torch are told.
    """

    name: str
    script: str
    meaning: str
    expected: tuple[Expected, ...]
    ranks: int = 4
    at_least: int = 2
    multiple_of: int = 1
    odd: int = 1
    odd_from: int = 0
    odd_matters: bool = True
    ending: Ending = ""
    armed: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Where the script is."""
        return JOBS / self.script


_SILENT = Expected("problem", ("UH103",), the_odd_one)
_ALL_HAD_ERRORS = Expected("insufficient", ("UH901",), nobody, nobody_waits=True)
_SOMEBODY_ABORTED = Expected("problem", ("UH103",), nobody, casualties=True)

_ALL = (
    LiveFault(
        "healthy",
        "healthy.py",
        "Every kind of call, on the whole job and on sub-groups; all of them finish.",
        (Expected("healthy", ("UH601",), nobody),),
        armed=True,
        odd_matters=False,
    ),
    LiveFault(
        "never-joined",
        "never_joined.py",
        "One rank waits for data that never come; its peers wait for it in all_reduce.",
        (Expected("problem", ("UH101",), the_odd_one),),
        odd=2,
    ),
    LiveFault(
        "skipped-call",
        "skipped_call.py",
        "One rank leaves out one all_reduce, and nobody notices until the calls run out.",
        (Expected("problem", ("UH102",), the_odd_one),),
    ),
    LiveFault(
        "skipped-then-barrier",
        "skipped_then_barrier.py",
        "One rank left out one all_reduce, and at last stands at a barrier ahead of its peers.",
        (Expected("problem", ("UH102",), the_odd_one),),
        at_least=3,
    ),
    LiveFault(
        "ddp-stall",
        "ddp_stall.py",
        "One rank's data loader stops; its peers wait inside DistributedDataParallel's backward.",
        (Expected("problem", ("UH101",), the_odd_one),),
    ),
    LiveFault(
        "crossed-order",
        "crossed_order.py",
        "Ranks enter two groups in crossed order, and wait for each other in a circle.",
        (Expected("problem", ("UH301",), nobody),),
        at_least=4,
        multiple_of=4,
        odd_matters=False,
    ),
    LiveFault(
        "wrong-op",
        "wrong_op.py",
        "One rank calls all_gather where its peers call all_reduce.",
        (Expected("problem", ("UH201",), the_odd_one),),
        at_least=3,
        odd=2,
    ),
    LiveFault(
        "wrong-shape",
        "wrong_shape.py",
        "One rank reduces a smaller tensor than its peers.",
        (Expected("problem", ("UH202",), the_odd_one),),
        at_least=4,
        odd=2,
    ),
    LiveFault(
        "wrong-shape-abort",
        "wrong_shape.py",
        "One rank reduces a larger tensor than its peers, and Gloo aborts a process.",
        (Expected("problem", ("UH202",), the_odd_one), _SOMEBODY_ABORTED),
        at_least=4,
        odd=1,
        ending="aborted",
        environ={"ODD_WIDTH": "4096"},
    ),
    LiveFault(
        "wrong-dtype",
        "wrong_dtype.py",
        "One rank reduces in double precision, and Gloo aborts a process.",
        (Expected("problem", ("UH203",), the_odd_one), _SOMEBODY_ABORTED),
        at_least=4,
        odd=2,
        ending="aborted",
    ),
    LiveFault(
        "dead-rank",
        "dead_rank.py",
        "One rank is killed; some peers get an error, the others wait.",
        (_SILENT, _ALL_HAD_ERRORS),
        at_least=3,
        odd=3,
        ending="killed",
    ),
    LiveFault(
        "frozen-rank",
        "frozen_rank.py",
        "One rank's process is stopped and cannot answer; its peers wait in all_reduce.",
        (_SILENT,),
        odd=2,
        ending="stopped",
    ),
    LiveFault(
        "wrapped-buffer",
        "wrapped_buffer.py",
        "A rank never joins, long after the recorder's buffer has wrapped unevenly.",
        (Expected("problem", ("UH101",), the_odd_one),),
        at_least=3,
        odd=3,
        odd_from=2,
        environ={"TORCH_FR_BUFFER_SIZE": "16"},
    ),
    LiveFault(
        "two-faults",
        "two_faults.py",
        "Two halves of a job each lose a rank, for reasons of their own.",
        (Expected("problem", ("UH101",), last_of_each_half),),
        at_least=4,
        multiple_of=2,
        odd_matters=False,
    ),
    LiveFault(
        "late-rank",
        "late_rank.py",
        "Nothing hangs, but one rank comes last to every call since half of the run.",
        (Expected("slow", ("UH501",), the_odd_one),),
    ),
    LiveFault(
        "p2p-cycle",
        "p2p_cycle.py",
        "All ranks of a ring receive before they send. Torch does not record Gloo's P2P calls.",
        (Expected("insufficient", ("UH901",), nobody),),
        odd_matters=False,
    ),
    LiveFault(
        "p2p-unmatched",
        "p2p_unmatched.py",
        "One rank waits in a receive that nobody answers; its peers wait for it in all_reduce.",
        (Expected("problem", ("UH101", "UH302"), the_odd_one),),
        at_least=3,
    ),
    LiveFault(
        "never-joined-armed",
        "never_joined.py",
        "never-joined with unhang's recorder armed: it also shows where the missing rank stands.",
        (Expected("problem", ("UH101",), the_odd_one),),
        odd=2,
        armed=True,
    ),
    LiveFault(
        "p2p-cycle-armed",
        "p2p_cycle.py",
        "p2p-cycle with unhang's recorder armed, which records Gloo's P2P calls too: also who "
        "used to send first.",
        (
            Expected("problem", ("UH302", "UH102"), the_first),
            Expected("problem", ("UH303",), nobody),
        ),
        odd_matters=False,
        armed=True,
    ),
    LiveFault(
        "p2p-unmatched-armed",
        "p2p_unmatched.py",
        "p2p-unmatched with unhang's recorder armed, which records Gloo's P2P calls too.",
        (
            Expected("problem", ("UH302",), the_odd_one),
            Expected("problem", ("UH302", "UH303", "UH301"), nobody),
        ),
        at_least=3,
        armed=True,
    ),
)

FAULTS: Mapping[str, LiveFault] = {fault.name: fault for fault in _ALL}
