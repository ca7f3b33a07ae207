from __future__ import annotations

import pytest

from unhang.run.identity import job_id, run_id, spans_nodes

PODS = {"PET_NNODES": "2", "PET_MASTER_ADDR": "train-node-0-0.train", "PET_MASTER_PORT": "29500"}
"""What Kubeflow's trainer sets in each pod, besides PET_NODE_RANK."""


@pytest.mark.parametrize(
    ("env", "command", "told", "expected"),
    [
        ({"UNHANG_JOB": "a", "SLURM_JOB_ID": "7"}, ["x"], "mine", "mine"),
        ({"UNHANG_JOB": "a", "SLURM_JOB_ID": "7"}, ["x"], "", "a"),
        ({"SLURM_JOB_ID": "7"}, ["x"], "", "7"),
        ({"RAY_JOB_ID": "ffffffff", "SLURM_JOB_ID": "7"}, ["x"], "", "7"),
        ({"RAY_JOB_ID": "02000000"}, ["x"], "", "02000000"),
        ({}, ["torchrun", "--nnodes=2", "--rdzv-id=run5", "t.py"], "", "run5"),
        ({}, ["torchrun", "--nnodes", "2", "--rdzv_endpoint", "h:1", "t.py"], "", "h_1"),
        ({}, ["torchrun", "--nnodes", "2", "--master-port", "1", "t.py"], "", "1"),
        ({**PODS, "PET_NODE_RANK": "0"}, ["torchrun", "t.py"], "", "train-node-0-0.train-29500"),
        ({**PODS, "PET_NODE_RANK": "1"}, ["torchrun", "t.py"], "", "train-node-0-0.train-29500"),
        ({**PODS, "PET_RDZV_ID": "run5"}, ["torchrun", "t.py"], "", "run5"),
        ({"RANK": "0", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, ["python"], "", "h-1"),
        ({}, ["x"], "../etc", "etc"),
    ],
)
def test_nodes_of_one_job_find_the_same_id(
    env: dict[str, str], command: list[str], told: str, expected: str
) -> None:
    """The user's word first, then the scheduler's, the launcher's, the rendezvous'."""
    assert job_id(env, command, told) == expected


def test_a_job_of_one_node_gets_an_id_of_its_own() -> None:
    """It begins with the script's name, and the rendezvous id of one node is nobody's business."""
    name = job_id({}, ["torchrun", "--rdzv-id=1", "path/train.py"])
    assert name.startswith("train-")


def test_runs_differ() -> None:
    """Two wrappers are never taken for one."""
    assert run_id().count("-") >= 2


@pytest.mark.parametrize(
    ("env", "words", "expected"),
    [
        ({}, ["torchrun", "--nnodes", "4", "t.py"], True),
        ({}, ["torchrun", "--nnodes=1:4", "t.py"], True),
        ({}, ["torchrun", "--nnodes=1", "t.py"], False),
        ({}, ["torchrun", "t.py"], False),
        ({}, ["torchrun", "--nnodes"], False),
        (PODS, ["torchrun", "t.py"], True),
        (PODS, ["torchrun", "--nnodes=1", "t.py"], False),
    ],
)
def test_jobs_that_span_nodes(env: dict[str, str], words: list[str], expected: bool) -> None:  # noqa: FBT001 - a table
    """The launcher's own option says how many nodes there are, else its environment."""
    assert spans_nodes(env, words) is expected
