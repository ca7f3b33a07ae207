"""`unhang collect` without a cluster: bad input, mpirun, Ray, and tools that are stood in for."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from command_line import unhang
from kube_api import kube_api


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--hosts=-oProxyCommand=reboot"], 2, "is not a host"),
        (["--hostfile", "/no/such/file"], 3, "cannot be read"),
        (["--resume", "/no/such/case"], 3, "is not a case of unhang collect"),
        (["--only", "dumps,music"], 2, "--only knows no 'music'"),
        (["--slurm", "x"], 2, "not a job id"),
        (["--node-timeout", "0"], 2, "is not a time"),
    ],
)
def test_bad_input_is_answered_in_a_sentence(
    words: list[str], code: int, message: str, tmp_path: Path
) -> None:
    """A clear sentence, the right exit code, and nothing left behind."""
    done = unhang("collect", *words, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


ABSENT = [
    (["--slurm", "4711"], "scontrol"),
    (["--flux", "f3ETxsR9H"], "flux"),
    (["--pbs", "4711"], "qstat"),
    (["--hosts", "node01"], "ssh"),
    (["--hosts", "node01", "--via", "pdsh"], "pdsh"),
    (["--kubectl", "job-name=train"], "kubectl"),
    (["--mpi", "hosts"], "mpirun"),
]


@pytest.mark.parametrize("command", ["collect", "stacks", "dump"])
@pytest.mark.parametrize(("words", "tool"), ABSENT)
def test_a_launcher_that_is_absent_is_named(
    command: str, words: list[str], tool: str, tmp_path: Path
) -> None:
    """Which program, what to do instead, exit code 3, and nothing made."""
    environ = {**os.environ, "PATH": str(tmp_path / "empty")}
    done = unhang(command, *words, environ=environ, cwd=tmp_path)
    assert done.returncode == 3
    error, hint = done.stderr.splitlines()
    assert error == f"unhang: {tool} is not installed here"
    assert hint.startswith("hint: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.debian("ssh")
@pytest.mark.parametrize("command", ["collect", "stacks", "dump"])
def test_an_unknown_host_is_named(command: str, tmp_path: Path) -> None:
    """In ssh's own words, with exit code 3 where nothing else was asked."""
    done = unhang(command, "--hosts", "no-such-host.invalid", cwd=tmp_path)
    assert done.returncode == 3, done.stdout
    assert "nothing came from no-such-host.invalid: ssh: Could not resolve hostname" in done.stderr
    assert "0 of 1 nodes answered" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_question_for_this_node_is_none_for_others(tmp_path: Path) -> None:
    """`dump --pid` and `--list` are about this node."""
    for words in (["--pid", "1"], ["--list"]):
        done = unhang("dump", *words, "--hosts", "node01", cwd=tmp_path)
        assert done.returncode == 2
        assert "--pid and --list are of this node" in done.stderr


@pytest.mark.debian("mpirun")
def test_mpirun_reaches_the_hosts_of_its_file(tmp_path: Path) -> None:
    """Open MPI itself starts the collector, which travels as an argument."""
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    words = ("--mpi", tmp_path / "hosts", "--only", "env", "--case", tmp_path / "case")
    done = unhang("collect", *words, "--job", "none-such")
    assert "from 1 node" in done.stdout, done.stderr
    assert list((tmp_path / "case" / "env").rglob("node.json"))


@pytest.fixture
def lonely_rank(tmp_path: Path) -> Iterator[str]:
    """A process that is rank 0 of a job of one; gives the name of the job."""
    ready, job = tmp_path / "ready", f"job-{uuid.uuid4().hex[:8]}"
    os.mkfifo(ready)
    program = f"open({str(ready)!r}, 'w').close(); import time; time.sleep(1_000)"
    environ = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "UNHANG_JOB": job}
    with subprocess.Popen([sys.executable, "-c", program], env=environ) as child:
        ready.read_text()
        yield job
        child.kill()


@pytest.mark.debian("kubectl")
def test_kubectl_reaches_the_pods_that_run(lonely_rank: str, tmp_path: Path) -> None:
    """The real kubectl, against a small API: pods by their labels, the collector by exec."""
    pods = {"train-0": "Running", "train-1": "Pending"}
    with kube_api(pods, "job-name=train", tmp_path) as (api, config):
        environ = {**os.environ, "KUBECONFIG": str(config), "HOME": str(tmp_path)}
        case = tmp_path / "case"
        words = ("--kubectl", "job-name=train", "-n", "research", "--job", lonely_rank)
        done = unhang("collect", *words, "--case", case, environ=environ)
        assert (done.returncode, "ranks 0 from 1 node" in done.stdout) == (0, True), done.stderr
        assert sorted(path.name for path in (case / "stacks").iterdir()) == ["train-0.json"]
        shown = unhang("stacks", *words, "--container", "train", environ=environ)
        assert "ranks 0 (1)" in shown.stdout, shown.stderr
        none = unhang("stacks", "--kubectl", "job-name=other", "-n", "research", environ=environ)
    assert api.execs == ["train-0", "train-0"]
    assert none.returncode == 3
    assert "no pod with job-name=other is running" in none.stderr


PDSH = 'shift 4; echo "alpha: login banner"; sh -c "$1" | sed "s/^/alpha: /"'


def stand_in(folder: Path, tool: str, script: str) -> dict[str, str]:
    """A shell script in the place of a tool; gives the environment that finds it first."""
    path = folder / "bin" / tool
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {**os.environ, "PATH": f"{path.parent}:{os.environ['PATH']}"}


def test_pdsh_is_stood_in_for(tmp_path: Path) -> None:
    """A script runs what pdsh would run on the node: the whole way but the network."""
    words = ("--hosts", "alpha", "--via", "pdsh", "--only", "env", "--job", "x")
    case = tmp_path / "case"
    done = unhang("collect", *words, "--case", case, environ=stand_in(tmp_path, "pdsh", PDSH))
    assert "from 1 node" in done.stdout, done.stderr
    assert len(list((case / "env").rglob("node.json"))) == 1


FLUX = """
case "$1" in
  jobs) echo "RUNNING 2 node[1-2]";;
  exec) [ "$2 $3 $4" = "--jobid=f3 --rank=0,1 --label-io" ] || exit 68
    shift 4; input=$(mktemp); cat > "$input"
    for rank in 0 1; do
      UNHANG_NODE=node$((rank + 1)) "$@" < "$input" | sed "s/^/$rank: /"
    done; rm "$input";;
esac"""


def test_flux_is_stood_in_for(tmp_path: Path) -> None:
    """A script does what flux exec documents: input for every node, labels on their lines."""
    case = tmp_path / "case"
    words = ("--flux", "f3", "--only", "env", "--job", "x", "--case", case)
    done = unhang("collect", *words, environ=stand_in(tmp_path, "flux", FLUX))
    assert "from 2 nodes" in done.stdout, done.stderr
    assert len(list((case / "env").rglob("node.json"))) == 2


RECIPES = Path(__file__).parents[2] / "docs" / "recipes.md"
INSIDE = """"$PYTHON" stuck.py & read ready < fifo
"$@" """
STUCK = """import time
def load_batch():
    with open("fifo", "w") as ready:
        ready.write("ready\\n")
    time.sleep(1000)
load_batch()
"""


def kubectls() -> list[str]:
    """The real one, where it is new enough to know profiles, and one that is stood in for."""
    with suppress(OSError):
        told = subprocess.run(["kubectl", "debug", "-h"], capture_output=True, check=False).stdout
        return ["real", "stand-in"] if b"--profile" in told else ["stand-in"]
    return ["stand-in"]


@pytest.mark.parametrize("kubectl", kubectls())
@pytest.mark.skipif(os.geteuid() != 0, reason="a namespace of processes needs root")
def test_an_ephemeral_container_sees_the_processes_of_its_target(
    kubectl: str, tmp_path: Path
) -> None:
    """What the recipe has kubectl start, beside a Python process, in a namespace of its own."""
    blocks = re.findall(r"```sh\n(.*?)```", RECIPES.read_text(), re.DOTALL)
    (script,) = (block for block in blocks if "kubectl debug" in block)
    (tmp_path / "stuck.py").write_text(STUCK)
    os.mkfifo(tmp_path / "fifo")
    stand_in(tmp_path, "pip", '[ "$1 $2 $3" = "install -q unhang[stacks]" ]')
    environ = stand_in(tmp_path, "unhang", f'exec {sys.executable} -m unhang "$@"')
    own = ["env", f"--chdir={tmp_path}", f"PATH={environ['PATH']}", f"PYTHON={sys.executable}"]
    namespace = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    inside = [*own, *namespace, "sh", "-c", INSIDE, "sh"]
    if kubectl == "stand-in":
        words = 'while [ "$1" != -- ]; do shift; done; shift; exec ' + shlex.join(inside)
        stand_in(tmp_path, "kubectl", f'{words} "$@"')
    with kube_api({"train-0": "Running"}, "job-name=train", tmp_path) as (api, config):
        api.inside = inside
        done = subprocess.run(
            ["bash", "-c", script], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            env={**environ, "KUBECONFIG": str(config), "HOME": str(tmp_path)}, check=False,
        )  # fmt: skip
    assert "load_batch" in done.stdout, done.stdout + done.stderr
    assert "stuck.py" in done.stdout
    if kubectl == "real":
        (debugger,) = api.debuggers
        assert (debugger["targetContainerName"], debugger["image"]) == ("trainer", "python:3.12")
        assert debugger["securityContext"] == {"privileged": True}


def test_a_node_without_ranks_is_no_success(tmp_path: Path) -> None:
    """Nothing of a job came: that is said, and the exit code says it; files of one are enough."""
    words = ("--job", "no-such-job", "--samples", "1")
    done = unhang("collect", *words, "--case", tmp_path / "case")
    assert (done.returncode, "found no rank of a job" in done.stdout) == (3, True)
    (tmp_path / "rank.log").write_text("step 1\n")
    done = unhang("collect", *words, "--logs", tmp_path / "*.log", "--case", tmp_path / "logs")
    assert (done.returncode, "next: unhang diagnose" in done.stdout) == (0, True)
