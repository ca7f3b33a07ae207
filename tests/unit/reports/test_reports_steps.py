"""The commands that help next: whose calls and stacks they show, and the job's own command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from unhang.analysis import diagnose
from unhang.case import Case
from unhang.casedir.place import Place
from unhang.model import AskedNode
from unhang.report import Decision, Finding, Report, Subject
from unhang.reports.content.next_steps import next_steps
from unhang.testing import FakeJob, sample_of


def report_of(code: str) -> Report:
    """A verdict with one cause."""
    found = Finding(id="f1", code=code, role="cause", confidence="high", summary="It failed.")
    return Report(status="problem", summary="It failed.", findings=(found,))


def again(code: str, *command: str) -> list[str]:
    """The commands that run the job again."""
    steps = next_steps(report_of(code), None, Place(command=command))
    return [step.command for step in steps if step.command.startswith("unhang run")]


@pytest.mark.parametrize("told", [("--nproc-per-node", "8"), ("--nproc_per_node=8",)])
def test_on_one_gpu_there_is_one_rank(told: tuple[str, ...]) -> None:
    """The others would find no GPU."""
    blocking, on_cpu, one = again("UH779", "torchrun", *told, "my train.py")
    assert blocking == f"unhang run --blocking -- torchrun {' '.join(told)} 'my train.py'"
    assert on_cpu == blocking.replace("--blocking", "--on-cpu")
    alone = " ".join(told).replace("8", "1")
    assert one == f"unhang run --one-gpu -- torchrun {alone} 'my train.py'"


def test_only_errors_of_kernels_and_known_commands() -> None:
    """Nothing is made up, and nothing that a terminal would obey is printed."""
    assert again("UH779") == []
    assert again("UH106", "python", "train.py") == []
    assert again("UH779", "python", "a\x1b[2Jb") == []


def missed_job(cluster: str = "slurm", namespace: str = "") -> tuple[Case, Report]:
    """Two nodes of two ranks, of which the second did not answer: ranks 0 and 1 wait."""
    job = FakeJob(4)
    job.call(range(4))
    job.call([0, 1], finished=False)
    job.missing = {2, 3}
    nodes = (
        AskedNode("node1", "answered", (0, 1)),
        AskedNode("node2", "not-reached", (2, 3), inferred=True, why="ssh: timed out"),
    )
    case = replace(job.case(), unvisited=(2, 3), nodes=nodes, cluster=cluster, namespace=namespace)
    return case, diagnose(case)


@pytest.mark.parametrize(
    ("cluster", "command"),
    [
        ("slurm", "scontrol update NodeName=node2 State=DRAIN Reason=unhang"),
        ("pbs", "pbsnodes -o node2"),
        ("flux", "flux resource drain node2 unhang"),
        (
            "kubernetes",
            "kubectl cordon \"$(kubectl get pod node2 -n ml -o 'jsonpath={.spec.nodeName}')\"",
        ),
        ("", ""),
    ],
)
def test_a_node_that_did_not_answer_is_asked_again(
    tmp_path: Path, cluster: str, command: str
) -> None:
    """First of all; and what takes it out where it is dead, in the cluster's own words."""
    case, report = missed_job(cluster, "ml")
    steps = next_steps(report, case, Place((str(tmp_path),), folder=str(tmp_path)))
    assert steps[0].command == f"unhang collect --resume {tmp_path}"
    drains = [step for step in steps if step.command == command]
    assert [step.why for step in drains] == ["only if it is dead"] * bool(command)
    assert not [step for step in steps if "node1" in step.command]


def test_a_bad_node_is_taken_out_by_the_name_that_its_cluster_has() -> None:
    """Its host may call itself by a longer one."""
    case, report = missed_job()
    host = Subject("host", "node2.cluster.example", host="node2.cluster.example")
    decision = Decision("restart-without", "bad-node", "high", (host,))
    steps = next_steps(replace(report, decision=decision), case, Place())
    assert "scontrol update NodeName=node2 State=DRAIN Reason=unhang" in {s.command for s in steps}


def of_one_stage() -> tuple[Case, Report]:
    """Two stages behind one another: rank 7 keeps ranks 4-6, and these keep ranks 0-3."""
    job = FakeJob(8)
    last = job.group(range(4, 8), "tp")
    pairs = [job.group([rank, rank + 4], "pp") for rank in range(4)]
    job.call(range(8))
    job.call([4, 5, 6], group=last, finished=False)
    for pair in pairs:
        job.call([pair.members[0]], group=pair, finished=False)
    samples = [sample_of(rank, "train.py:9 main", sample=n) for rank in range(8) for n in (0, 1)]
    case = job.case(samples=samples)
    return case, diagnose(case)


def test_the_ranks_of_the_call_are_shown() -> None:
    """Others wait for the culprit as well, but behind those, in calls of their own."""
    case, report = of_one_stage()
    assert set(report.findings[0].victims) >= {0, 1, 4, 5}
    first, stacks, *_ = next_steps(report, case, Place(("job",), stacks="job/stacks"))
    assert first.command == "unhang entries job --ranks 4-5,7 --last 5 --group 1"
    assert stacks.command == "unhang stacks job/stacks --no-verdict --ranks 4-5,7"


def test_a_look_at_the_living_is_no_second_verdict() -> None:
    """Stacks alone could say something else."""
    case, report = of_one_stage()
    without = replace(report.findings[0], sites=())
    steps = next_steps(replace(report, findings=(without,)), replace(case, samples=()), Place())
    commands = [step.command for step in steps if step.command.startswith("unhang stacks")]
    assert commands == ["unhang stacks --pid 1007 --no-verdict"]
