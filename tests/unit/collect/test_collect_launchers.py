from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from unhang.collect.launchers import Launcher, Program
from unhang.collect.launchers.flux import Flux
from unhang.collect.launchers.hosts import Pdsh, Ssh, Template
from unhang.collect.launchers.kubernetes import Kubernetes
from unhang.collect.launchers.local import Local
from unhang.collect.launchers.mpi import Mpi
from unhang.collect.launchers.pbs import Pbs
from unhang.collect.launchers.ray import Ray
from unhang.collect.launchers.slurm import Slurm
from unhang.collect.launchers.tools import hosts_of, read_host_file
from unhang.errors import InputError, MissingExtraError, ToolError, UnhangError, UsageError

PROGRAM = Program("SCRIPT 'x'", b"zip", "INLINE")


def tool(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program of this name first in PATH."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("node01", ["node01"]),
        ("a,b,a", ["a", "b"]),
        ("node[08-11,20],login", ["node08", "node09", "node10", "node11", "node20", "login"]),
        ("r[1-2]-ib", ["r1-ib", "r2-ib"]),
        ("user@10.0.0.1, [fe80::1]", ["user@10.0.0.1", "[fe80::1]"]),
    ],
)
def test_lists_of_hosts(text: str, hosts: list[str]) -> None:
    """Commas, ranges with their zeros, users, addresses; each host once."""
    assert hosts_of(text) == hosts


@pytest.mark.parametrize("text", ["", ",", "-oProxyCommand=x", "a b", "node[3-1]", "n[1-9999999]"])
def test_what_is_no_host_is_refused(text: str) -> None:
    """Above all nothing that ssh would take for an option."""
    with pytest.raises(UsageError):
        hosts_of(text)


def test_host_files(tmp_path: Path) -> None:
    """As MPI and DeepSpeed write them."""
    path = tmp_path / "hosts"
    path.write_text("# ours\nnode01 slots=8\nnode02:8\n\nnode01\n")
    assert read_host_file(path) == ["node01", "node02"]
    path.write_text("# nobody\n")
    with pytest.raises(UsageError, match="names no host"):
        read_host_file(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_host_file(tmp_path / "none")


def test_ssh_never_asks_and_quotes_for_any_shell() -> None:
    """The script is one word for sh, options come before the host, which ends them."""
    launch = Ssh(("u@node01",), ("-p", "2222")).launch(("u@node01",), PROGRAM)
    assert launch.command == (
        "ssh", "-p", "2222", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-T", "--",
        "u@node01", "exec sh -c 'SCRIPT '\"'\"'x'\"'\"''",
    )  # fmt: skip
    assert launch.stdin == b"zip"
    assert Ssh(("u@node01",)).orders("u@node01") == {"node": "node01"}


def test_any_command_that_ends_in_a_shell() -> None:
    """The host's name where {host} stands; the program is what the shell reads."""
    template = Template(("u@a", "b"), "sshpass -f 'my file' ssh -p 22 {host}")
    launch = template.launch(("u@a",), PROGRAM)
    assert launch.command == ("sshpass", "-f", "my file", "ssh", "-p", "22", "u@a", "sh")
    assert launch.stdin == b"INLINE"
    assert template.orders("b") == {"node": "b"}
    assert Template(("a",), "env {host}").nodes() == ("a",)
    with pytest.raises(UsageError, match=r"has no \{host\}"):
        Template(("a",), "ssh").nodes()
    with pytest.raises(UsageError, match="no closing quotation"):
        Template(("a",), "ssh '{host}").nodes()
    with pytest.raises(ToolError, match="no-such-tool is not installed here"):
        Template(("a",), "no-such-tool {host}").nodes()


def test_pdsh_and_mpirun_carry_the_collector_inside() -> None:
    """They pass no input on: the program is an argument."""
    launch = Pdsh(("a", "b")).launch(("a", "b"), PROGRAM)
    assert launch.command == ("pdsh", "-R", "ssh", "-w", "a,b", "exec sh -c INLINE")
    assert launch.stdin == b""
    command = Mpi(Path("hosts")).launch(("a", "b"), PROGRAM).command
    assert command[-3:] == ("sh", "-c", "INLINE")
    assert "a:1,b:1" in command


@pytest.mark.parametrize(
    "hosts",
    ["n1/0*8+n2.site/\n\t0*8", "n1/0-7+n2.site/0-7", "n1/0+n1/1+n2.site/0+n2.site/1"],
)
def test_a_pbs_job_is_reached_by_ssh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: str
) -> None:
    """Its hosts as OpenPBS and Torque print them, each once; long lines are folded there."""
    (tmp_path / "told").write_text(
        f"Job Id: 4711.server\n    Job_Name = x\n    job_state = R\n    exec_host = {hosts}\n"
        "    exec_vnode = (n1:ncpus=8)+(n2:ncpus=8)\n"
    )
    tool(tmp_path, "qstat", f'[ "$1 $2" = "-f 4711" ] && cat {tmp_path}/told', monkeypatch)
    pbs = Pbs("4711", ("-p", "2222"))
    assert pbs.nodes() == ["n1", "n2.site"]
    launch = pbs.launch(("n1",), PROGRAM)
    assert launch.command == Ssh(("n1",), ("-p", "2222")).launch(("n1",), PROGRAM).command
    assert (launch.stdin, pbs.orders("n1")) == (b"zip", {"node": "n1"})


@pytest.mark.parametrize(
    ("told", "error", "says"),
    [
        ("job_state = Q", ToolError, r"does not run \(state Q\)"),
        ("job_state = B", UsageError, "is an array"),
        ("", ToolError, r"does not run \(state unknown\)"),
        ("job_state = R\n exec_host = -oX/0", UsageError, "is not a host"),
    ],
)
def test_a_pbs_job_without_nodes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    told: str,
    error: type[UnhangError],
    says: str,
) -> None:
    """It waits, is many jobs, or is unknown; or names what ssh would take for an option."""
    (tmp_path / "told").write_text(f" {told}\n")
    tool(tmp_path, "qstat", f"cat {tmp_path}/told", monkeypatch)
    with pytest.raises(error, match=says):
        Pbs("4711[]").nodes()


@pytest.mark.parametrize("job", ["", "-x", "4711;x", "a.b"])
def test_what_is_no_job_of_pbs_is_refused(job: str) -> None:
    """Before qstat sees it."""
    with pytest.raises(UsageError, match="not a job id of PBS"):
        Pbs(job).nodes()


def test_a_slurm_job_is_asked_for_its_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes by scontrol; the step takes neither GPUs nor memory and labels its lines."""
    tool(tmp_path, "scontrol", """
case "$2" in
  job) echo "JobId=4711 JobState=RUNNING ReqNodeList=(null) NodeList=n[1-2] BatchHost=n1" \
    "StdErr=/scratch/out.log StdIn=/dev/null StdOut=/scratch/out.log x";;
  hostnames) echo n1; echo n2;;
esac""", monkeypatch)  # fmt: skip
    slurm = Slurm("4711")
    assert slurm.nodes() == ["n1", "n2"]
    command = slurm.launch(("n1", "n2"), PROGRAM).command
    wanted = {"--jobid=4711", "--overlap", "--gres=none", "--mem=0", "--label", "--nodelist=n1,n2"}
    assert wanted <= set(command)
    assert command[-3:] == ("sh", "-c", "SCRIPT 'x'")
    assert slurm.orders("n1") == {
        "slurm_jobs": ["4711"],
        "slurm_outputs": {"node": "n1", "files": ["/scratch/out.log"]},
    }


def test_a_task_of_an_array_has_a_number_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which srun and the environment of its ranks know, and no other; an array is no job."""
    tool(tmp_path, "scontrol", """
case "$2" in
  job) echo "JobId=4714 ArrayJobId=4711 ArrayTaskId=3 JobState=RUNNING NodeList=n1"
    [ "$4" = 4711_3 ] || echo "JobId=4711 ArrayTaskId=4 JobState=RUNNING NodeList=n2";;
  hostnames) echo "$3";;
esac""", monkeypatch)  # fmt: skip
    slurm = Slurm("4711_3")
    assert slurm.nodes() == ["n1"]
    assert "--jobid=4714" in slurm.launch(("n1",), PROGRAM).command
    assert slurm.orders("n1")["slurm_jobs"] == ["4714"]
    with pytest.raises(UsageError, match="is an array with 2 running tasks"):
        Slurm("4711").nodes()


def test_the_parts_of_a_job_are_one_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node by the part that it is in; ranks carry the number of the first part."""
    tool(tmp_path, "scontrol", """
case "$2" in
  job) echo "JobId=7 HetJobId=7 HetJobOffset=0 JobState=RUNNING NodeList=n1 BatchHost=n1"
    echo "JobId=8 HetJobId=7 HetJobOffset=1 JobState=RUNNING NodeList=n2 BatchHost=n2";;
  hostnames) echo "$3";;
esac""", monkeypatch)  # fmt: skip
    slurm = Slurm("7")
    assert slurm.nodes() == ["n1", "n2"]
    assert slurm.launch(("n2",), PROGRAM).command[1:3] == ("--jobid=7", "--het-group=1")
    assert slurm.orders("n2")["slurm_jobs"] == ["7", "8"]


@pytest.mark.parametrize(
    ("state", "message"),
    [("COMPLETED", "has ended"), ("PENDING", "does not run"), ("TIMEOUT", "has ended")],
)
def test_a_job_that_does_not_run_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, message: str
) -> None:
    """With what can be done instead."""
    tool(tmp_path, "scontrol", f"echo 'JobId=4711 JobState={state} NodeList=(null)'", monkeypatch)
    with pytest.raises(ToolError, match=message):
        Slurm("4711").nodes()


def test_an_unknown_job_has_slurms_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong id is the tool's to say; nonsense never reaches it."""
    tool(tmp_path, "scontrol", "echo 'slurm_load_jobs error: Invalid job id' >&2; exit 1",
         monkeypatch)  # fmt: skip
    with pytest.raises(ToolError, match="Invalid job id"):
        Slurm("4711").nodes()
    with pytest.raises(UsageError, match="not a job id"):
        Slurm("$(reboot)").nodes()


def test_a_flux_job_is_asked_for_its_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes by flux jobs; flux exec names them by their place in the job."""
    tool(tmp_path, "flux", "[ $5 = ƒ3ETxs ] && echo 'RUNNING 3 n[08-09],login'", monkeypatch)
    flux = Flux("ƒ3ETxs", ("--verbose",))
    assert flux.nodes() == ["n08", "n09", "login"]
    assert flux.launch(("n08", "login"), PROGRAM).command == (
        "flux", "exec", "--jobid=ƒ3ETxs", "--rank=0,2", "--label-io", "--verbose",
        "sh", "-c", "SCRIPT 'x'",
    )  # fmt: skip
    assert "--rank=3" in flux.launch(("gone",), PROGRAM).command
    assert flux.launch(("n09",), PROGRAM).stdin == b"zip"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'PENDING  '", r"does not run \(pending\)"),
        ("echo 'COMPLETED 1 n1'", r"does not run \(completed\)"),
        ("echo 'RUNNING 2 n1,n1'", "several brokers"),
        ("true", "does not run"),
        ("echo 'flux-jobs: ERROR: unknown job' >&2; exit 1", "unknown job"),
    ],
)
def test_a_flux_job_that_cannot_be_reached_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    """In Flux's own words where it has any; nonsense never reaches it."""
    tool(tmp_path, "flux", script, monkeypatch)
    with pytest.raises(ToolError, match=message):
        Flux("f1").nodes()
    with pytest.raises(UsageError, match="not a job id of Flux"):
        Flux("--jobid").nodes()


def test_pods_are_those_that_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By label, in their namespace and container."""
    pods = {
        "items": [
            {"metadata": {"name": "train-0"}, "status": {"phase": "Running"}},
            {"metadata": {"name": "train-1"}, "status": {"phase": "Pending"}},
            {"metadata": {"name": "--evil"}, "status": {"phase": "Running"}},
        ]
    }
    tool(tmp_path, "kubectl", f"cat <<'E'\n{json.dumps(pods)}\nE", monkeypatch)
    kubernetes = Kubernetes("job-name=train", "research", "main")
    assert kubernetes.nodes() == ["train-0"]
    assert kubernetes.launch(("train-0",), PROGRAM).command == (
        "kubectl", "-n", "research", "exec", "-i", "train-0", "-c", "main", "--", "sh", "-c",
        "SCRIPT 'x'",
    )  # fmt: skip
    tool(tmp_path, "kubectl", "echo '{\"items\": []}'", monkeypatch)
    with pytest.raises(ToolError, match="no pod with job-name=train is running"):
        kubernetes.nodes()
    deep = "head -c 200000 /dev/zero | tr '\\0' '['"
    for answer in ("echo nonsense", "echo 5", deep):
        tool(tmp_path, "kubectl", answer, monkeypatch)
        with pytest.raises(ToolError, match="no readable list"):
            kubernetes.nodes()


@pytest.mark.parametrize(
    "launcher",
    [Slurm("1"), Flux("f1"), Kubernetes("a=b"), Ssh(("a",)), Pdsh(("a",)), Mpi(Path("hosts"))],
    ids=lambda launcher: type(launcher).__name__,
)
def test_an_absent_tool_is_named(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to install or to use instead."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UnhangError, match="is not installed here") as caught:
        launcher.nodes()
    assert caught.value.hint


def test_this_node_needs_no_tool() -> None:
    """A shell and its own name."""
    local = Local()
    (node,) = local.nodes()
    assert local.launch((node,), PROGRAM).command == ("sh", "-c", "SCRIPT 'x'")
    assert local.orders(node) == {"node": node}


def test_ray_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client is an extra."""
    monkeypatch.setattr("unhang.collect.launchers.ray.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError) as raised:
        Ray("auto").nodes()
    assert "unhang[ray]" in raised.value.hint
