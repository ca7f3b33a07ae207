"""`unhang collect`, `stacks` and `dump` on a real cluster of two nodes: by SLURM, and by ssh."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from clusters import Cluster, cluster, why_not
from command_line import unhang
from eight_stuck import (
    EXPECTED_CAUSES,
    RANKS,
    STOPPED,
    all_stuck,
    causes,
    expected_tree,
    targets_of,
)
from guide_page import on_the_page
from patience import wait_for
from ports import free_ports
from report_samples import never_joined

from unhang.reports import render

PROGRAMS = Path(__file__).parent / "programs"
FOUR = PROGRAMS / "four_ranks.py"
SOURCE = Path(__file__).parents[2] / "src"

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
    pytest.mark.debian("slurmctld", "slurmd", "munged", "sshd", "ssh", "unshare", "jq"),
]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of two nodes."""
    with cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def submit(nodes: Cluster, program: Path, ranks: int, folder: Path, **more: str) -> str:
    """Start a job whose ranks are evenly on both nodes; returns its id."""
    environ = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_ports(1)[0]),
        "WORLD_SIZE": str(ranks),
        "PYTHONPATH": str(SOURCE),
        "UNHANG_DIR": str(folder / "cases"),
        "UNHANG_RUNTIME_DIR": str(folder / "runtime"),
        "OMP_NUM_THREADS": "1",
        **more,
    }
    assign = " ".join(f"{key}={shlex.quote(value)}" for key, value in environ.items())
    run = f"{assign} exec {sys.executable} {program}"
    each = f"--ntasks-per-node={ranks // 2}"
    step = shlex.join(["srun", "--nodes=2", f"--ntasks={ranks}", each, "sh", "-c", run])
    script = folder / "batch.sh"
    script.write_text(f"#!/bin/sh\necho the job begins\nexec {step}\n")
    return nodes.submit(script, each, f"--output={folder}/out-%j.log")


@pytest.fixture(scope="module")
def job(nodes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four armed ranks on two nodes: rank 3 waits for data, the others for rank 3."""
    folder, ready = tmp_path_factory.mktemp("four"), tmp_path_factory.mktemp("ready")
    told = submit(nodes, FOUR, 4, folder, READY=str(ready))
    wait_for(lambda: {path.name for path in ready.iterdir()} == set("0123"), "all ranks ready")
    return told


@pytest.fixture(scope="module")
def eight(nodes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Eight ranks on the same nodes, stuck in four ways."""
    folder = tmp_path_factory.mktemp("eight")
    ready = folder / "ready"
    ready.touch()
    told = submit(nodes, PROGRAMS / "eight_ranks.py", RANKS, folder, READY=str(ready))
    wait_for(lambda: ready.stat().st_size == RANKS, "all ranks ready")
    wait_for(lambda: all_stuck(told), "all ranks at their places")
    (stopped,) = (target for target in targets_of(told) if target.rank == STOPPED)
    os.kill(stopped.process.pid, signal.SIGSTOP)
    return told


def by_slurm(nodes: Cluster, job: str) -> tuple[list[object], Mapping[str, str]]:
    """Options and environment that reach a job through SLURM."""
    return ["--slurm", job], nodes.environ


def by_ssh(
    nodes: Cluster, job: str, names: str = "n1,n2"
) -> tuple[list[object], Mapping[str, str]]:
    """Options and environment that reach the same job by ssh."""
    options = f"-F {nodes.ssh_config}"
    return ["--hosts", names, "--launcher-options", options, "--job", job], os.environ


def line_of(text: str) -> int:
    """The number of the line of the four ranks' program that holds a text."""
    lines = FOUR.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


CULPRIT = ("UH101", [3], line_of("time.sleep(1_000)"))


def culprits(text: str) -> list[tuple[str, list[int], int]]:
    """Code, culprits and line of the causes of a report."""
    found = [f for f in json.loads(text)["findings"] if f["role"] == "cause"]
    return [(f["code"], f["culprits"], f["sites"][0]["line"]) for f in found]


def manifest_of(case: Path) -> dict[str, Any]:
    """The manifest of a case."""
    loaded: dict[str, Any] = json.loads((case / "manifest.json").read_text())
    return loaded


def came(case: Path) -> list[list[str]]:
    """What came of each of the four ranks."""
    ranks = manifest_of(case)["ranks"]
    return [sorted(ranks[str(rank)]["came"]) for rank in range(4)]


# ------------------------------------------------------------------ the whole job, hung


@pytest.mark.parametrize("way", [by_slurm, by_ssh])
def test_eight_ranks_on_two_nodes_are_one_tree(way: Any, nodes: Cluster, eight: str) -> None:  # noqa: ANN401 - a function
    """Ranges, meanings, states and lines are those of the same ranks on one node."""
    words, environ = way(nodes, eight)
    done = unhang("stacks", *words, "--interval", "0.3", environ=environ)
    assert done.returncode == 1, done.stderr
    tree = done.stdout[done.stdout.index("\nranks 0-7 (8)\n") + 1 :]
    assert tree.splitlines() == expected_tree()


@pytest.mark.parametrize("way", [by_slurm, by_ssh])
def test_eight_ranks_on_two_nodes_give_the_verdict(way: Any, nodes: Cluster, eight: str) -> None:  # noqa: ANN401 - a function
    """The same causes, culprits and victims."""
    words, environ = way(nodes, eight)
    done = unhang("stacks", *words, "--interval", "0.3", "--format", "json", environ=environ)
    assert done.returncode == 1, done.stderr
    assert causes(done.stdout) == EXPECTED_CAUSES


@pytest.fixture(scope="module")
def home(nodes: Cluster, job: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The case that one command makes of the job."""
    case = tmp_path_factory.mktemp("home") / "case"
    done = unhang("collect", "--slurm", job, "--case", case, environ=nodes.environ)
    assert done.returncode == 0, done.stderr
    assert "ranks 0-3 from 2 nodes" in done.stdout
    return case


def test_one_command_brings_a_slurm_job_home(home: Path, job: str) -> None:
    """Dumps, stacks, log and surroundings of both nodes, and the culprit with its line."""
    case = home
    assert came(case) == [["dump", "env", "stacks"]] * 4
    reported = {node["host"]: node["ranks"] for node in manifest_of(case)["nodes"]}
    assert reported == {"n1": [0, 1], "n2": [2, 3]}
    assert sorted(case.glob("logs/*/*")) == [case / "logs" / "n1" / f"out-{job}.log"]
    assert "the job begins" in (case / "logs" / "n1" / f"out-{job}.log").read_text()
    verdict = unhang("diagnose", case, "--format", "json")
    assert verdict.returncode == 1, verdict.stderr
    assert culprits(verdict.stdout) == [CULPRIT]


def test_a_case_can_be_shown_without_names(home: Path, tmp_path: Path) -> None:
    """Both hosts are gone from contents and names of files; the verdict is the same."""
    done = unhang("collect", "--redact", home, "--case", tmp_path / "clean")
    assert done.returncode == 0, done.stderr
    assert "Replaced: " in done.stdout
    files = [path for path in (tmp_path / "clean").rglob("*") if path.is_file()]
    told = {str(path.relative_to(tmp_path)): path.read_bytes() for path in files}
    host = re.compile(rb"(?<![A-Za-z0-9])n[12](?![A-Za-z0-9])")
    found = [name for name, data in told.items() if host.search(data) or host.search(name.encode())]
    assert found == []
    verdict = unhang("diagnose", tmp_path / "clean", "--format", "json")
    assert culprits(verdict.stdout) == [CULPRIT]


def test_hosts_are_collected_by_ssh(nodes: Cluster, job: str, tmp_path: Path) -> None:
    """The same case without SLURM; a host that does not exist stops nobody."""
    words, environ = by_ssh(nodes, job, "n1,n2,gamma.invalid")
    done = unhang("collect", *words, cwd=tmp_path, environ=environ)
    assert done.returncode == 1, done.stderr
    assert "nothing came from gamma.invalid: ssh: Could not resolve hostname" in done.stderr
    (case,) = (tmp_path / "unhang-cases").iterdir()
    assert came(case) == [["dump", "env", "stacks"]] * 4
    verdict = unhang("diagnose", case, "--format", "json")
    assert culprits(verdict.stdout) == [CULPRIT]


@pytest.mark.parametrize("way", [by_slurm, by_ssh])
def test_dumps_of_a_whole_job_are_triggered(
    way: Any,  # noqa: ANN401 - a function
    nodes: Cluster,
    job: str,
    tmp_path: Path,
) -> None:
    """`unhang dump` asks the recorders of all nodes, and the case gives the verdict."""
    words, environ = way(nodes, job)
    done = unhang("dump", *words, "--no-stacks", cwd=tmp_path, environ=environ)
    assert done.returncode == 0, done.stderr
    assert "dumps of ranks 0-3" in done.stdout
    (case,) = (tmp_path / "unhang-cases").iterdir()
    assert came(case) == [["dump"]] * 4
    verdict = unhang("diagnose", case, "--format", "json")
    assert [found[:2] for found in culprits(verdict.stdout)] == [CULPRIT[:2]]


def test_ranks_without_a_recorder_write_no_dump(nodes: Cluster, eight: str, tmp_path: Path) -> None:
    """Each says why; the stacks that came stay."""
    words, environ = by_slurm(nodes, eight)
    done = unhang("dump", *words, "--case", tmp_path / "case", environ=environ)
    assert done.returncode == 3, done.stdout
    assert "on n1): no recorder of unhang is armed in it" in done.stderr
    assert "no rank wrote a dump" in done.stderr
    assert "hint: Start the job with 'unhang run" in done.stderr
    assert list((tmp_path / "case" / "stacks").iterdir())


def test_a_task_of_an_array_is_a_job_of_its_own(nodes: Cluster, tmp_path: Path) -> None:
    """Its ranks are found, those of the other tasks on the same node are not."""
    ready = tmp_path / "ready"
    ready.touch()
    program = f"import time; open({str(ready)!r}, 'a').write('x'); time.sleep(1_000)"
    script = tmp_path / "batch.sh"
    script.write_text(f"#!/bin/sh\nexec srun {sys.executable} -c {shlex.quote(program)}\n")
    array = nodes.run("sbatch", "--parsable", "--array=3-4", "--output=/dev/null", str(script))
    wait_for(lambda: ready.stat().st_size == 2, "both tasks run")
    for task in ("3", "4"):
        words = ("--slurm", f"{array.strip()}_{task}", "--samples", "1", "--format", "json")
        done = unhang("stacks", *words, environ=nodes.environ)
        ranks = json.loads(done.stdout)["ranks"]
        assert [rank["rank"] for rank in ranks] == [0]
    done = unhang("stacks", "--slurm", array.strip(), environ=nodes.environ)
    assert done.returncode == 2
    assert "is an array with 2 running tasks" in done.stderr
    nodes.run("scancel", "--signal=KILL", "--full", array.strip())


# ------------------------------------------------------------------ what goes wrong


def test_a_node_that_is_away_costs_only_itself(nodes: Cluster, job: str, tmp_path: Path) -> None:
    """The rest is there, the manifest says what is not; --resume brings it once it is back."""
    case = tmp_path / "case"
    nodes.stop_slurmd("n2")
    try:
        done = unhang(
            "collect", "--slurm", job, "--case", case, "--node-timeout", "30",
            environ=nodes.environ,
        )  # fmt: skip
    finally:
        nodes.start_slurmd("n2")
    assert done.returncode == 1, done.stderr
    assert "nothing came from n2" in done.stderr
    manifest = manifest_of(case)
    assert came(case) == [["dump", "env", "stacks"]] * 2 + [[]] * 2
    assert manifest["ranks"]["3"]["missing"] == {"all": "no node reported this rank"}
    (note,) = next(node["notes"] for node in manifest["nodes"] if node["host"] == "n2")
    assert note.startswith("nothing came from this node: ")
    verdict = unhang("diagnose", case, "--format", "json")
    assert not {0, 1} & set(json.loads(verdict.stdout)["findings"][0]["culprits"])
    wait_for(lambda: _resumed(case, nodes) == 0, "the node is back")
    assert came(case) == [["dump", "env", "stacks"]] * 4
    again = unhang("diagnose", case, "--format", "json")
    assert culprits(again.stdout) == [CULPRIT]


def _resumed(case: Path, nodes: Cluster) -> int:
    done = unhang("collect", "--resume", case, "--node-timeout", "30", environ=nodes.environ)
    return done.returncode


@pytest.mark.parametrize("command", ["collect", "stacks", "dump"])
def test_a_wrong_job_id_has_slurms_words(command: str, nodes: Cluster, tmp_path: Path) -> None:
    """A clear sentence and nothing made."""
    done = unhang(command, "--slurm", "999999", environ=nodes.environ, cwd=tmp_path)
    assert done.returncode == 3
    assert "Invalid job id" in done.stderr
    assert "hint: " in done.stderr
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ as the guides have it

PY_SPY = Path(sys.executable).parent / "py-spy"
SPY = f"pgrep -f python.*/{FOUR.name} | xargs -I {{}} {PY_SPY} dump --pid {{}}; true"


def test_stacks_that_srun_wrote(nodes: Cluster, job: str, tmp_path: Path) -> None:
    """`srun --jobid … --output=trace-%N.out sh -c '… py-spy dump'`, a file a node."""
    step = ["--overlap", f"--jobid={job}", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1"]
    nodes.run("srun", *step, f"--output={tmp_path}/trace-%N.out", "sh", "-c", SPY)
    traces = sorted(tmp_path.glob("trace-*.out"))
    assert [path.name for path in traces] == ["trace-n1.out", "trace-n2.out"]
    on_the_page("srun … --output=trace-%N.out", unhang("stacks", *traces).stdout)


def test_stacks_that_pdsh_printed(nodes: Cluster, job: str, tmp_path: Path) -> None:
    """Every node's py-spy by ssh, each line behind the name of its host."""
    del job
    pasted = ""
    for node in ("n1", "n2"):
        words = ["ssh", "-F", str(nodes.ssh_config), node, SPY]
        said = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        pasted += "".join(f"{node}: {line}\n" for line in said.splitlines())
    (tmp_path / "pasted.txt").write_text(pasted)
    on_the_page("pdsh -w node", unhang("stacks", tmp_path / "pasted.txt").stdout)


RECIPES = Path(__file__).parents[2] / "docs" / "recipes.md"


def recipe(word: str) -> str:
    """The script of docs/recipes.md in which a word is."""
    blocks = re.findall(r"```sh\n(.*?)```", RECIPES.read_text(), re.DOTALL)
    (found,) = (block for block in blocks if word in block)
    return found


def batch(nodes: Cluster, folder: Path, fault: str) -> str:
    """Submit the recipe's script, but for two nodes without GPUs, on one loopback, impatient."""
    script, hanging = recipe("hang-$SLURM_JOB_ID"), PROGRAMS / "hanging_jobs.py"
    for printed, here in (
        ("--nodes=4 ", "--nodes=2 "), (" --gpus-per-node=8", ""),
        ("torchrun --nnodes 4", "torchrun --local-addr 127.0.0.1 --nnodes 2"),
        ("--nproc-per-node 8", "--nproc-per-node 2"),
        ("| head -1)", "| head -1 | sed s/.*/127.0.0.1/)"),
        (":29500", f":{free_ports(1)[0]}"), ("train.py", f"{hanging} {fault}"),
        ("unhang run ", "unhang run --hang-after 6 --grace 0 "),
    ):  # fmt: skip
        assert printed in script
        script = script.replace(printed, here)
    (folder / "batch.sh").write_text(script)
    told = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    told["UNHANG_RUNTIME_DIR"] = str(folder / "runtime")
    given = ",".join(f"{name}={value}" for name, value in told.items())
    words = (f"--export=ALL,{given}", f"--chdir={folder}", f"--output={folder}/out")
    return nodes.submit(folder / "batch.sh", *words)


def ended(nodes: Cluster, number: str) -> bool:
    """Whether a job is over; other tests have jobs, too."""
    return number not in nodes.run("squeue", "-h", "-o", "%i", "-t", "PD,R,CG").split()


def test_the_batch_script_gives_one_verdict_and_ends_the_job(
    nodes: Cluster, tmp_path: Path
) -> None:
    """A rank is stuck: one case of the job's four ranks names it."""
    number = batch(nodes, tmp_path, "sleeps")
    wait_for(lambda: ended(nodes, number), "that it is ended")
    said = (tmp_path / "out").read_text()
    files = sorted(tmp_path.glob(f"hang-{number}*/report.json"))  # a slow start may be one, too
    reports = [json.loads(file.read_text()) for file in files]
    (report,) = (each for each in reports if each["status"] == "problem")
    cause = report["findings"][0]
    assert (cause["code"], cause["culprits"]) == ("UH101", [1]), said
    assert {rank["rank"] for rank in report["ranks"]} == {0, 1, 2, 3}, said
    assert "ending the job" in said


def test_the_batch_script_leaves_a_job_alone_that_evaluates(nodes: Cluster, tmp_path: Path) -> None:
    """One rank works while those of both nodes wait for it; the job ends by itself, and well."""
    number = batch(nodes, tmp_path, "evaluates")
    out = tmp_path / "out"

    def spared() -> bool:
        assert not ended(nodes, number), out.read_text()
        return out.exists() and "the job is left alone" in out.read_text()

    wait_for(spared, "that it is left alone")
    (tmp_path / "go-on").touch()
    wait_for(lambda: ended(nodes, number), "its end")
    assert "ending the job" not in out.read_text()
    told = nodes.run("scontrol", "show", "job", number)
    assert ("JobState=COMPLETED" in told, "ExitCode=0:0" in told) == (True, True), out.read_text()


def test_a_task_prolog_arms_every_task(nodes: Cluster, tmp_path: Path) -> None:
    """The recipe's script, run by SLURM before a task that knows nothing of us."""
    prolog = tmp_path / "prolog.sh"
    prolog.write_text(recipe("TaskProlog").replace("/opt/unhang/bin/python", sys.executable))
    prolog.chmod(0o755)
    program = "import os, sys, torch.distributed; print('armed', 'unhang.record.arm' in sys.modules"
    program += ", os.environ['TORCH_FR_BUFFER_SIZE'], os.environ['PYTHONPATH'].count(':'))"
    words = ("srun", "--nodes=1", "--ntasks=1", "--overlap", f"--task-prolog={prolog}")
    environ = {"PYTHONPATH": str(tmp_path), "UNHANG_RUNTIME_DIR": str(tmp_path / "runtime")}
    for arm, said in (("1", "armed True 2000 1"), ("0", "armed False 2000 1")):
        exported = ",".join(f"{k}={v}" for k, v in {**environ, "UNHANG_ARM": arm}.items())
        told = nodes.run(*words, f"--export=ALL,{exported}", sys.executable, "-c", program)
        assert told.strip() == said


def test_a_bad_node_is_drained_with_its_reason(nodes: Cluster, tmp_path: Path) -> None:
    """The recipe's pipeline: only where the decision is to leave a node out, and with our words."""
    brief = json.loads(render("brief-json", never_joined()))
    decision = {"action": "restart-without", "reason": "bad-node", "confidence": "high"}
    (tmp_path / "unhang").write_text(f"#!/bin/sh\ncat {tmp_path}/brief.json\n")
    (tmp_path / "unhang").chmod(0o755)
    environ = {**nodes.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for action, reason in (("look-first", "none"), ("restart-without", "unhang: bad node")):
        told = {**brief, "decision": {**decision, "action": action}, "hosts": ["n2"]}
        (tmp_path / "brief.json").write_text(json.dumps(told))
        subprocess.run(["bash", "-c", recipe("state=drain")], env=environ, check=True)
        state, why = nodes.run("sinfo", "-h", "-n", "n2", "-o", "%t/%E").strip().split("/")
        assert (state in ("drain", "drng"), why) == (reason != "none", reason)
    nodes.run("scontrol", "update", "nodename=n2", "state=resume")
