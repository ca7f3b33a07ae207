"""Launchers on the command line: each is chosen by its own options, and by nothing else."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from unhang.collect.launchers import Choice, Launcher
from unhang.collect.launchers.choosing import CHOICES, add_choices, is_chosen, launcher_of
from unhang.collect.launchers.hosts import Pdsh, Ssh, Template
from unhang.collect.launchers.kubernetes import Kubernetes
from unhang.collect.launchers.local import Local
from unhang.collect.launchers.slurm import Slurm
from unhang.errors import UsageError

DOCS = Path(__file__).parents[3] / "docs" / "collect.md"


def parsed(*words: str) -> argparse.Namespace:
    """The arguments of a command that has a launcher's options."""
    parser = argparse.ArgumentParser()
    add_choices(parser.add_argument_group("where"))
    return parser.parse_args(words)


@pytest.mark.parametrize(
    ("words", "launcher"),
    [
        ((), Local()),
        (("--slurm", "4711", "--launcher-options", "-p debug"), Slurm("4711", ("-p", "debug"))),
        (("--hosts", "a,b", "--launcher-options", "-p 2222"), Ssh(("a", "b"), ("-p", "2222"))),
        (("--hosts", "a", "--via", "pdsh"), Pdsh(("a",))),
        (("--hosts", "a", "--via", "in {host}"), Template(("a",), "in {host}")),
        (("--kubectl", "x=y", "-n", "research", "--container", "main"),
         Kubernetes("x=y", "research", "main")),
    ],
)  # fmt: skip
def test_options_choose_a_launcher(words: tuple[str, ...], launcher: Launcher) -> None:
    """With all that they tell it; this node without any."""
    args = parsed(*words)
    assert launcher_of(args) == launcher
    assert is_chosen(args) == (words != ())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--via", "pdsh"), "--via is for --hosts and --hostfile"),
        (("--slurm", "4711", "-n", "research"), "--namespace is for --kubectl"),
        (("--launcher-options=-v",), "--launcher-options is for .* or ssh"),
        (("--kubectl", "a=b", "--launcher-options=-v"), "--launcher-options is for .* or ssh"),
        (("--hosts", "a", "--via", "pdsh", "--launcher-options=-v"), "is for ssh"),
        (("--hosts", "a", "--launcher-options", "'"), "no closing quotation"),
    ],
)
def test_what_the_chosen_launcher_would_pass_over_is_refused(
    words: tuple[str, ...], message: str
) -> None:
    """An option that has no effect is a mistake."""
    with pytest.raises(UsageError, match=message):
        launcher_of(parsed(*words))


def test_two_launchers_cannot_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    """Argparse says so."""
    with pytest.raises(SystemExit):
        parsed("--slurm", "4711", "--ray", "auto")
    assert "not allowed with argument" in capsys.readouterr().err


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice.by[0].name)
def test_a_choice_is_documented(choice: Choice) -> None:
    """Each option that chooses a launcher stands in docs/collect.md."""
    text = DOCS.read_text()
    for option in choice.by:
        assert f"`{option.name} " in text
