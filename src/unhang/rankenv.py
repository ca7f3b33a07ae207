"""What launchers tell the processes that they start: rank, world size, local rank, job, attempt.

One table for all who read an environment: the recorder and `unhang.print` inside the job, those who
look from outside (`/proc`, core files), the doctor's ranks. So it needs the standard library only,
and knows nothing of the rest.

Launchers nest, and the outer one's variables stay: `sbatch` leaves SLURM_PROCID=0 next to the
OMPI_COMM_WORLD_RANK of each rank that `mpirun` starts in it, and under `srun torchrun` it is the
node's number. Hence an order, from what is started last to what is started first, and a condition
where a variable alone means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

MAX_RANK: Final = 1 << 24
_DIGITS: Final = 9

Environ = Mapping[str, str]


def number_of(text: str | None) -> int:
    """A number as an environment has it; -1 for what is none: it comes from outside."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= _DIGITS else -1


def _always(_: Environ) -> bool:
    return True


def _by_prrte(environ: Environ) -> bool:
    """Whether PMIX_RANK is of mpirun's daemons: srun's own is the same number as SLURM_PROCID."""
    return not environ.get("PMIX_NAMESPACE", "").startswith("slurm.")


def _in_step(environ: Environ) -> bool:
    return "SLURM_STEP_ID" in environ


def _is_task(environ: Environ) -> bool:
    """Whether SLURM_PROCID is a rank: srun set it, or the batch script is all of the job's tasks.

    Another batch script has SLURM_PROCID=0 too, and is none of the ranks that it starts.
    """
    return _in_step(environ) or environ.get("SLURM_TASKS_PER_NODE") == "1"


class _Row(NamedTuple):
    """What one family of launchers sets; the first local rank that is there counts.

    Attributes:
        job: What the launcher itself calls the job, or "".
        holds: Whether these variables are this process's own.
    """

    rank: str
    world_size: str
    local_ranks: tuple[str, ...]
    job: str = ""
    holds: Callable[[Environ], bool] = _always


# srun; SLURM_NTASKS may be that of the whole job, with more than this step
_STEP: Final = _Row("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ("SLURM_LOCALID",), "", _is_task)
_ROWS: Final = (
    # torchrun, DeepSpeed, accelerate, Ray Train, Kubeflow: what torch itself reads
    _Row("RANK", "WORLD_SIZE", ("LOCAL_RANK",), "TORCHELASTIC_RUN_ID"),
    # horovodrun without MPI
    _Row("HOROVOD_RANK", "HOROVOD_SIZE", ("HOROVOD_LOCAL_RANK",)),
    # Open MPI
    _Row(
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        "PMIX_NAMESPACE",
    ),
    # MVAPICH2
    _Row("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", ("MV2_COMM_WORLD_LOCAL_RANK",)),
    # MPICH, Intel MPI, Cray MPICH, srun --mpi=pmi2
    _Row("PMI_RANK", "PMI_SIZE", ("MPI_LOCALRANKID", "PMI_LOCAL_RANK")),
    # prterun and other servers of PMIx
    _Row("PMIX_RANK", "", (), "PMIX_NAMESPACE", _by_prrte),
    # Flux
    _Row("FLUX_TASK_RANK", "FLUX_JOB_SIZE", ("FLUX_TASK_LOCAL_ID",)),
    # PALS (HPE Cray)
    _Row("PALS_RANKID", "", ("PALS_LOCAL_RANKID",)),
    _STEP,
)
"""From the innermost launcher to the outermost: the first row that tells a rank is right."""

_PRECEDENCE: Final = {row.rank: place for place, row in enumerate(_ROWS)}

_SCHEDULERS: Final = (
    "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "FLUX_JOB_ID", "RAY_JOB_ID",
)  # fmt: skip
"""What schedulers call the job; the same on all of its nodes."""

_NO_JOB: Final = ("", "none", "ffffffff")
"""torchrun's run id by default, and RAY_JOB_ID of a worker that was started ahead of any job."""

_LOCAL_SIZES: Final = (
    "LOCAL_WORLD_SIZE", "HOROVOD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MV2_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
)  # fmt: skip
"""How many ranks a node has; SLURM has a list over nodes, and says where there is one alone."""
_STEP_NODES: Final = "SLURM_STEP_NUM_NODES"

_CLUSTERS: Final = (
    ("SLURM_JOB_ID", "slurm"),
    ("PBS_JOBID", "pbs"),
    ("FLUX_JOB_ID", "flux"),
    ("KUBERNETES_SERVICE_HOST", "kubernetes"),
)
"""A scheduler inside Kubernetes knows its own nodes better."""

_NODE: Final = "SLURMD_NODENAME"
_ATTEMPT: Final = "TORCHELASTIC_RESTART_COUNT"

VARIABLES: Final = frozenset(
    {
        *(row.rank for row in _ROWS),
        *(row.world_size for row in _ROWS if row.world_size),
        *(name for row in _ROWS for name in row.local_ranks),
        *(row.job for row in _ROWS if row.job),
        *_SCHEDULERS,
        *_LOCAL_SIZES,
        *("UNHANG_JOB", "MASTER_ADDR", "MASTER_PORT", _NODE, _ATTEMPT),
        *("SLURM_STEP_ID", "SLURM_TASKS_PER_NODE", _STEP_NODES, "GROUP_RANK"),
    }
)  # fmt: skip
"""All that is read here: what a collector has to keep of an environment."""

LAUNCHERS: Final = frozenset(
    {
        "torchrun", "torchx", "deepspeed", "accelerate", "horovodrun", "mpirun", "mpiexec",
        "mpiexec.hydra", "prterun", "orterun", "orted", "prted", "hydra_pmi_proxy", "srun",
        "slurmstepd", "composer", "colossalai", "lightning", "fabric", "unhang",
        "torch.distributed.run", "torch.distributed.launch", "deepspeed.launcher.launch",
        "deepspeed.launcher.runner", "accelerate.commands.launch",
        "accelerate.commands.accelerate_cli",
    }
)  # fmt: skip
"""Programs and modules that start ranks, and are none though they may have a rank's variables."""


class RankEnv(NamedTuple):
    """What the environment tells of one rank.

    Attributes:
        world_size: Ranks of the job; 0 where that is not told, or contradicts the rank.
        local_rank: Its number on its node; -1 where that is not told.
        variable: Which one told the rank.
        job: What tells this job from others, or "".
        in_step: Whether it is a task of SLURM's step, so that what the step says is said of it.
    """

    rank: int
    world_size: int
    local_rank: int
    variable: str
    job: str
    in_step: bool


def rank_env(environ: Environ, least_world: int = 0) -> RankEnv | None:
    """The rank that an environment names; None where it names none.

    Args:
        environ: Of the process.
        least_world: Variables count only where they tell at least so many ranks.
    """
    rows = (_read(row, environ) for row in _ROWS if row.holds(environ))
    return next((told for told in rows if told and told.world_size >= least_world), None)


def _read(row: _Row, environ: Environ) -> RankEnv | None:
    rank, size = number_of(environ.get(row.rank)), number_of(environ.get(row.world_size))
    if not 0 <= rank < MAX_RANK:
        return None
    in_step = _in_step(environ) and (rank, size) == tuple(map(number_of, _tasks(environ)))
    names = (*row.local_ranks, *(_STEP.local_ranks if in_step else ()))
    local = (number_of(environ.get(name)) for name in names)
    return RankEnv(
        rank,
        world_size=size if rank < size <= MAX_RANK else 0,
        local_rank=next((number for number in local if number >= 0), -1),
        variable=row.rank,
        job=job_of(environ, row.job),
        in_step=in_step,
    )


def neighbours_of(environ: Environ) -> range:
    """The ranks that the launcher has started on the node of a rank; empty where nothing tells.

    Known are those that are all of a job, and those of torchrun, which numbers them node by node.
    """
    told = rank_env(environ)
    if told is None or told.local_rank < 0:
        return range(0)
    if told.in_step and environ.get(_STEP_NODES) == "1":
        return range(told.world_size)
    sizes = (number_of(environ.get(name)) for name in _LOCAL_SIZES)
    here = next((size for size in sizes if size > 0), 0)
    if here and here == told.world_size:
        return range(here)
    first = told.rank - told.local_rank
    numbered = told.variable == "RANK" and "GROUP_RANK" in environ and told.local_rank < here
    return range(first, first + here) if numbered and 0 <= first <= MAX_RANK - here else range(0)


def _tasks(environ: Environ) -> tuple[str | None, str | None]:
    return environ.get(_STEP.rank), environ.get(_STEP.world_size)


def precedence_of(variable: str) -> int:
    """Place of a rank's variable in the order; the lower one is right where two contradict."""
    return _PRECEDENCE[variable]


def job_of(environ: Environ, *before: str) -> str:
    """What tells one job from others on all of its nodes, or "".

    Args:
        environ: Of one of its processes.
        before: Variables that count before those of schedulers.
    """
    if told := _job_in(environ, ("UNHANG_JOB", "TORCHELASTIC_RUN_ID", *before, *_SCHEDULERS)):
        return told
    port = environ.get("MASTER_PORT", "")
    return f"{environ.get('MASTER_ADDR') or 'local'}-{port}" if port else ""


def scheduled_job(environ: Environ) -> str:
    """What the user or the scheduler calls the job, whatever launcher is yet to start; or ""."""
    return _job_in(environ, ("UNHANG_JOB", *_SCHEDULERS))


def _job_in(environ: Environ, names: tuple[str, ...]) -> str:
    return next((told for name in names if (told := environ.get(name, "")) not in _NO_JOB), "")


def attempt_of(environ: Environ) -> int:
    """How often torchrun has restarted the job; 0 at first, and where nothing tells."""
    return max(number_of(environ.get(_ATTEMPT)), 0)


def cluster_of(environ: Environ) -> str:
    """Whose node this is: "slurm", "kubernetes", "pbs", "flux"; "" where nothing tells."""
    return next((cluster for name, cluster in _CLUSTERS if name in environ), "")


def node_of(environ: Environ) -> str:
    """What SLURM calls this node, which the host need not know; "" where it is not there."""
    return environ.get(_NODE, "")
