"""Ranks as launchers tell them: environments that they really set, alone and one in another.

Those of torchrun 2.13, SLURM 22.05 (but for its PMIx plugin), Open MPI 4.1.4, MPICH 5.0 and
Ray 2.60 were taken from processes that these started; those of the others are from their sources.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from unhang import printing
from unhang.collect.processes import Process, ProcessTable
from unhang.collect.ranks import find_ranks
from unhang.cores.elfcore import CoreFacts
from unhang.doctor.asking.joined import seat_of
from unhang.errors import UsageError
from unhang.rankenv import (
    VARIABLES,
    attempt_of,
    job_of,
    neighbours_of,
    node_of,
    precedence_of,
    rank_env,
)

TORCHRUN = {
    "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29873", "RANK": "3", "ROLE_RANK": "3",
    "ROLE_WORLD_SIZE": "4", "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RESTART_COUNT": "2",
    "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_USE_AGENT_STORE": "True", "WORLD_SIZE": "4",
}  # fmt: skip
BATCH = {
    "SLURMD_NODENAME": "n1", "SLURM_GTIDS": "0", "SLURM_JOB_ID": "307890",
    "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_NUM_NODES": "2", "SLURM_LOCALID": "0",
    "SLURM_NNODES": "2", "SLURM_NODEID": "0", "SLURM_NPROCS": "8", "SLURM_NTASKS": "8",
    "SLURM_PROCID": "0", "SLURM_TASKS_PER_NODE": "7,1",
}  # fmt: skip
"""What `sbatch --nodes=2 --ntasks=8` gives the script."""
STEP = {
    "SLURMD_NODENAME": "n2", "SLURM_GTIDS": "1", "SLURM_JOB_ID": "307890",
    "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_NUM_NODES": "2", "SLURM_LOCALID": "0",
    "SLURM_NNODES": "2", "SLURM_NODEID": "1", "SLURM_NPROCS": "2", "SLURM_NTASKS": "2",
    "SLURM_PROCID": "1", "SLURM_STEPID": "1", "SLURM_STEP_ID": "1",
    "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_TASKS_PER_NODE": "1(x2)",
}  # fmt: skip
"""What `srun --nodes=2 --ntasks=2` in it gives the second task."""
MPIRUN = {
    "OMPI_COMM_WORLD_LOCAL_RANK": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "3",
    "OMPI_COMM_WORLD_NODE_RANK": "2", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_UNIVERSE_SIZE": "8", "PMIX_ID": "403767297.3", "PMIX_NAMESPACE": "403767297",
    "PMIX_RANK": "3",
}  # fmt: skip
ORTED = STEP | {
    "SLURM_NNODES": "1", "SLURM_NODEID": "0", "SLURM_NPROCS": "1", "SLURM_NTASKS": "1",
    "SLURM_PROCID": "0", "SLURM_STEPID": "2", "SLURM_STEP_ID": "2", "SLURM_STEP_NODELIST": "n2",
    "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_TASKS_PER_NODE": "1",
}  # fmt: skip
"""What the one daemon of `mpirun` in it gets, which is on the second node."""
MPIRUN_FAR = MPIRUN | {
    "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
    "OMPI_COMM_WORLD_NODE_RANK": "0", "OMPI_COMM_WORLD_RANK": "1", "PMIX_RANK": "1",
}  # fmt: skip
HYDRA = {
    "MPI_LOCALNRANKS": "3", "MPI_LOCALRANKID": "2", "PMI_FD": "15", "PMI_RANK": "2",
    "PMI_SIZE": "3",
}  # fmt: skip
PMI2 = BATCH | STEP | {
    "PMI_FD": "23", "PMI_JOBID": "307890.4", "PMI_RANK": "6", "PMI_SIZE": "8",
    "SLURM_GTIDS": "0,1,2,3,4,5,6", "SLURM_LOCALID": "6", "SLURM_MPI_TYPE": "pmi2",
    "SLURM_NTASKS": "8", "SLURM_PROCID": "6", "SLURM_STEP_NUM_TASKS": "8",
}  # fmt: skip
PMIX = {"PMIX_RANK": "1", "PMIX_NAMESPACE": "slurm.pmix.307890.1"}
DEEPSPEED = {
    "RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "CROSS_RANK": "1", "CROSS_SIZE": "2",
    "LOCAL_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "29500",
}  # fmt: skip
HOROVOD = {
    "HOROVOD_RANK": "5", "HOROVOD_SIZE": "8", "HOROVOD_LOCAL_RANK": "1",
    "HOROVOD_LOCAL_SIZE": "4", "HOROVOD_CROSS_RANK": "1", "HOROVOD_CROSS_SIZE": "2",
}  # fmt: skip
FLUX = {
    "FLUX_TASK_RANK": "5", "FLUX_TASK_LOCAL_ID": "1", "FLUX_JOB_SIZE": "8",
    "FLUX_JOB_NNODES": "2", "FLUX_JOB_ID": "12",
}  # fmt: skip
PALS = {"PALS_RANKID": "5", "PALS_LOCAL_RANKID": "1"}
MVAPICH = {
    "MV2_COMM_WORLD_RANK": "5", "MV2_COMM_WORLD_SIZE": "8", "MV2_COMM_WORLD_LOCAL_RANK": "1",
}  # fmt: skip

ENVIRONMENTS = {
    "torchrun": (TORCHRUN, (3, 4, 1, "127.0.0.1-29873")),
    "srun": (STEP, (1, 2, 0, "307890")),
    "mpirun": (MPIRUN, (3, 4, 2, "403767297")),
    "mpiexec.hydra": (HYDRA, (2, 3, 2, "")),
    "srun --mpi=pmi2": (PMI2, (6, 8, 6, "307890")),
    "srun --mpi=pmix": (STEP | PMIX, (1, 2, 0, "307890")),
    "deepspeed": (DEEPSPEED, (5, 8, 1, "a-29500")),
    "horovodrun": (HOROVOD, (5, 8, 1, "")),
    "flux run": (FLUX, (5, 8, 1, "12")),
    "PALS": (PALS, (5, 0, 1, "")),
    "MVAPICH2": (MVAPICH, (5, 8, 1, "")),
    "sbatch, mpirun": (BATCH | MPIRUN, (3, 4, 2, "403767297")),
    "sbatch, mpirun, far node": (ORTED | MPIRUN_FAR, (1, 4, 0, "403767297")),
    "sbatch, mpiexec.hydra": (BATCH | HYDRA, (2, 3, 2, "307890")),
    "srun --mpi=pmix, mpiexec.hydra": (STEP | PMIX | HYDRA, (2, 3, 2, "307890")),
    "srun, torchrun": (STEP | TORCHRUN, (3, 4, 1, "307890")),
    "srun --mpi=pmi2, torchrun": (PMI2 | TORCHRUN, (3, 4, 1, "307890")),
    "mpirun, python that sets RANK": (
        MPIRUN | {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "2"}, (3, 4, 2, ""),
    ),
    "sbatch with one task": (BATCH | {"SLURM_TASKS_PER_NODE": "1"}, (0, 0, 0, "307890")),
}  # fmt: skip


@pytest.mark.parametrize("launchers", ENVIRONMENTS)
def test_the_innermost_launcher_tells_the_rank(launchers: str) -> None:
    """Rank, world size, local rank, and what the job is called."""
    environ, expected = ENVIRONMENTS[launchers]
    told = rank_env(environ)
    assert told is not None
    assert (told.rank, told.world_size, told.local_rank, told.job) == expected


@pytest.mark.parametrize("launchers", ENVIRONMENTS)
def test_all_who_ask_hear_the_same(launchers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`unhang.print`, a core file, the processes of a node and the doctor's ranks."""
    environ, (rank, world_size, _, _) = ENVIRONMENTS[launchers]
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    facts = CoreFacts(environment={k: v for k, v in environ.items() if k in VARIABLES})
    process = Process(10, 1, command="python train.py", python=True, environ=environ)
    (target,) = find_ranks(ProcessTable.of([process]))
    assert printing.rank_here() == str(rank)
    assert (facts.rank, facts.world_size) == (rank, world_size)
    assert (target.rank, target.world_size) == (rank, world_size)
    if world_size:
        seat = seat_of({"MASTER_ADDR": "a", **environ})
        assert seat is not None
        assert (seat.rank, seat.size) == (rank, world_size)


@pytest.mark.parametrize(
    "environ", [{}, BATCH, {"RANK": ""}, {"RANK": "-1"}, {"RANK": "9" * 12}, PMIX]
)
def test_what_is_no_rank(environ: Mapping[str, str]) -> None:
    """The script of a job of several tasks is none of them."""
    assert rank_env(environ) is None


def test_a_world_that_is_too_small_is_not_told() -> None:
    """The rank stays; who needs both looks further."""
    stray = {"RANK": "9", "WORLD_SIZE": "8"}
    told = rank_env(stray)
    assert told is not None
    assert (told.rank, told.world_size) == (9, 0)
    further = rank_env(MPIRUN | stray, least_world=2)
    assert further is not None
    assert (further.rank, further.world_size) == (3, 4)


def test_the_nodes_of_mpiruns_daemons_do_not_tell_where_rank_0_is() -> None:
    """They are all but the first one, which has rank 0."""
    with pytest.raises(UsageError, match="MASTER_ADDR"):
        seat_of(ORTED | MPIRUN_FAR)
    seat = seat_of(STEP)
    assert seat is not None
    assert seat.address == "n1"


def test_an_outer_launchers_variable_is_worth_less() -> None:
    """Where a process below has a better one, the one above is a launcher."""
    order = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"]
    assert sorted(order, key=precedence_of) == order


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({"UNHANG_JOB": "mine", **STEP, "TORCHELASTIC_RUN_ID": "run7"}, "mine"),
        ({"TORCHELASTIC_RUN_ID": "run7", **STEP}, "run7"),
        ({"RAY_JOB_ID": "02000000"}, "02000000"),
        ({"RAY_JOB_ID": "ffffffff", "MASTER_PORT": "1"}, "local-1"),  # a worker started ahead
        ({}, ""),
    ],
)
def test_what_the_job_is_called(environ: Mapping[str, str], job: str) -> None:
    """As the user says, the launcher, the scheduler; or by where its ranks meet."""
    assert job_of(environ) == job


@pytest.mark.parametrize(
    ("environ", "ranks"),
    [
        (TORCHRUN, range(2, 4)),
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "4"}, range(4)),
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "1000000000"}, range(0)),
        ({**TORCHRUN, "LOCAL_RANK": "5", "LOCAL_WORLD_SIZE": "3"}, range(0)),
        ({"RANK": "3", "WORLD_SIZE": "4"}, range(0)),
        (STEP, range(0)),
        ({**STEP, "SLURM_STEP_NUM_NODES": "1"}, range(2)),
        ({}, range(0)),
    ],
)
def test_the_ranks_that_a_launcher_has_started_on_a_node(
    environ: Mapping[str, str], ranks: range
) -> None:
    """SLURM may deal ranks out in turns: then only the whole job is known."""
    assert neighbours_of(environ) == ranks


def test_attempt_and_node() -> None:
    """As torchrun counts restarts, and as SLURM calls the node."""
    assert (attempt_of(TORCHRUN), attempt_of({}), node_of(STEP), node_of({})) == (2, 0, "n2", "")
