from __future__ import annotations

import pytest

from unhang.surroundings import describe_node, harmless_environment
from unhang.telltale import REMOVED, harmless_command


def test_only_what_matters_and_no_secrets() -> None:
    """Variables of the trade are taken, everything else and every secret stays outside."""
    env = {
        "RANK": "3",
        "NCCL_DEBUG": "INFO",
        "WANDB_API_KEY": "w",
        "HOME": "/home/user",
        "SLURM_JWT_TOKEN": "t",
        "TORCH_HUB": "https://user:word@example.org",
        "RAY_ADDRESS": "ray://head:10001",
    }
    assert harmless_environment(env) == {
        "NCCL_DEBUG": "INFO",
        "RANK": "3",
        "RAY_ADDRESS": "ray://head:10001",
        "SLURM_JWT_TOKEN": REMOVED,
        "TORCH_HUB": REMOVED,
    }


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train.py", "--lr", "0.1"], ["train.py", "--lr", "0.1"]),
        (["x", "--api-key", "abc", "--lr", "1"], ["x", "--api-key", REMOVED, "--lr", "1"]),
        (["x", "--wandb_token=abc"], ["x", f"--wandb_token={REMOVED}"]),
        (["x", "HF_TOKEN=abc"], ["x", f"HF_TOKEN={REMOVED}"]),
        (["x", "s3://key:word@host/b"], ["x", f"s3://{REMOVED}@host/b"]),
        (["x", "--use-auth-token", "--lr"], ["x", "--use-auth-token", "--lr"]),
    ],
)
def test_secrets_of_a_command_line(words: list[str], expected: list[str]) -> None:
    """Values of telling options, assignments and URLs are replaced, the rest stays."""
    assert harmless_command(words) == expected


def test_a_node_describes_itself_in_plain_values() -> None:
    """Everything in it can be written as JSON."""
    node = describe_node({"RANK": "1"}, torch="2.13.0")
    assert node["torch"] == "2.13.0"
    assert node["environment"] == {"RANK": "1"}
    assert isinstance(node["limits"], dict)
