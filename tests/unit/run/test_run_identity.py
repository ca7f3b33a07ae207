from __future__ import annotations

import pytest

from unhang.run.identity import job_id, run_id, spans_nodes


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
    ("words", "expected"),
    [
        (["torchrun", "--nnodes", "4", "t.py"], True),
        (["torchrun", "--nnodes=1:4", "t.py"], True),
        (["torchrun", "--nnodes=1", "t.py"], False),
        (["torchrun", "t.py"], False),
        (["torchrun", "--nnodes"], False),
    ],
)
def test_jobs_that_span_nodes(words: list[str], expected: bool) -> None:  # noqa: FBT001 - a table
    """The launcher's own option says how many nodes there are."""
    assert spans_nodes(words) is expected
