"""The recipe of docs/recipes.md for Kubernetes over two pods, healthy and stuck.

The real kubectl asks a small API of ours; pods are nodes apart, with the variables that Kubeflow's
trainer sets and one volume. The command of the manifest runs as printed, but for two ranks a pod.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from apart import Node, nodes_apart
from clusters import why_not
from command_line import unhang
from kube_api import kube_api
from patience import PATIENCE_S, wait_for
from run_jobs import PROGRAM

pytest.importorskip("torch.distributed", reason="needs torch")

RECIPES = Path(__file__).parents[2] / "docs" / "recipes.md"
LABEL = "jobset.sigs.k8s.io/jobset-name=train"
IMPATIENT = ("--hang-after", "6", "--grace", "0")

pytestmark = [
    pytest.mark.debian("ip", "nsenter", "sshd", "ssh", "kubectl"),
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]


def recipe() -> tuple[list[str], list[str]]:
    """The command of the manifest, and how its pods are collected, as docs/recipes.md prints it."""
    text = RECIPES.read_text().partition("\n## Kubernetes")[2].partition("\n## ")[0]
    (command,) = re.findall(r"command: (\[.*\])", text)
    (collect,) = re.findall(rf"^unhang (collect .*{re.escape(LABEL)}.*)$", text, re.MULTILINE)
    return json.loads(command), collect.split()


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    """Two pods, each with its own network, processes, host name and /tmp."""
    with nodes_apart(tmp_path_factory.mktemp("pods"), ("train-0", "train-1"), {}) as (made, _):
        yield list(made.values())


@contextmanager
def job(
    pods: Sequence[Node], cases: Path, fault: str, options: Sequence[str] = ()
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start the manifest's command in both pods."""
    printed, _ = recipe()
    here = {"/cases/hang": [str(cases / "hang")], "8": ["2"], "train.py": [str(PROGRAM), fault],
            "run": ["run", *options]}  # fmt: skip
    assert here.keys() <= set(printed)
    words = [word for each in printed for word in here.get(each, [each])]
    env = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TMPDIR": "/tmp",  # noqa: S108 - a pod's own
        "KUBERNETES_SERVICE_HOST": "10.96.0.1", "GLOO_SOCKET_IFNAME": "eth0", "HOME": "/root",
        "PET_NNODES": "2", "PET_MASTER_ADDR": pods[0].address, "PET_MASTER_PORT": "29500",
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    with ExitStack() as stack:
        started = []
        for number, pod in enumerate(pods):
            log = stack.enter_context((pod.folder / f"{fault}.log").open("wb"))
            noted = ["sh", "-c", 'echo $$ > pid; exec "$@"', "sh", *words]
            started.append(pod.start(noted, {**env, "PET_NODE_RANK": str(number)}, log))
            stack.callback(started[-1].wait, PATIENCE_S)
            stack.callback(_end, pod)
        yield started


def _end(pod: Node) -> None:
    """End what runs in a pod, unless it has ended."""
    pod.run("sh", "-c", "kill -TERM $(cat pid) || true")


def said(pods: Sequence[Node], fault: str) -> str:
    """What both pods printed."""
    return "\n".join((pod.folder / f"{fault}.log").read_text("utf-8", "replace") for pod in pods)


def collected(pods: Sequence[Node], folder: Path) -> dict[str, Any]:
    """The verdict on what `collect` brings, as it is printed."""
    with kube_api({pod.name: "Running" for pod in pods}, LABEL, folder) as (api, config):
        api.enters |= {pod.name: pod.entered() for pod in pods}
        environ = {**os.environ, "KUBECONFIG": str(config), "HOME": str(folder)}
        done = unhang(*recipe()[1], "--python", sys.executable, cwd=folder, environ=environ)
    assert (done.returncode, "ranks 0-3 from 2 nodes" in done.stdout) == (0, True), done.stderr
    told = unhang("diagnose", "--format", "json", cwd=folder)
    return dict(json.loads(told.stdout))


def test_a_healthy_job_is_left_alone(pods: list[Node], tmp_path: Path) -> None:
    """No case is made; what is collected of it, not in one moment, is a guess at most."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as cases:
        with job(pods, Path(cases), "steps") as started:
            marks = "unhang-*/*/marks/*"
            wait_for(lambda: all(len([*p.folder.glob(marks)]) > 1 for p in pods), "ranks")
            report = collected(pods, tmp_path)
            causes = [each for each in report["findings"] if each["role"] == "cause"]
            assert {each["confidence"] for each in causes} <= {"low"}, report["summary"]
            assert {rank["rank"] for rank in report["ranks"]} == {0, 1, 2, 3}
            (pods[0].folder / "go-on").touch()
            assert [each.wait(PATIENCE_S) for each in started] == [0, 0], said(pods, "steps")
        assert list(Path(cases).iterdir()) == [], said(pods, "steps")


def test_a_stuck_job_is_one_case(pods: list[Node], tmp_path: Path) -> None:
    """Both pods' supervisors find each other by the volume; what is collected says the same."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        cases = Path(name)

        def problems() -> list[dict[str, Any]]:
            told = [json.loads(file.read_text()) for file in cases.glob("hang*/report.json")]
            return [report for report in told if report["status"] == "problem"]

        with job(pods, cases, "sleeps", IMPATIENT):
            wait_for(lambda: bool(problems()), "a verdict")  # on a slow start, it is a later one
            reports = [problems()[-1], collected(pods, tmp_path)]
        for each in reports:
            cause = each["findings"][0]
            assert (cause["code"], cause["culprits"]) == ("UH101", [1]), said(pods, "sleeps")
            assert {rank["rank"] for rank in each["ranks"]} == {0, 1, 2, 3}, said(pods, "sleeps")
