"""Every command in the docs, run as it stands there, in a folder that has what the docs speak of.

Launchers are stand-ins that start nothing. What needs nodes, living ranks or torch is run by other
tests, with real ones: `ELSEWHERE` says which.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from report_samples import never_joined

from lab.simulate.corpus import CaseSpec
from lab.simulate.writing import simulate
from unhang.reports import render

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests" / "integration"
PAGES = sorted(
    [ROOT / "README.md", ROOT / "skills" / "unhang" / "SKILL.md", *ROOT.glob("docs/*.md")]
)

ELSEWHERE = {
    r"--slurm|^srun": "test_collect_clusters.py",
    r"--kubectl": "test_collect_tools.py",
    r"--ray|--engine": "test_ray.py",
    r"doctor.*--hosts|doctor$|doctor (comm|gpu|net)|doctor comm": "test_doctor_clusters.py",
    r"--hosts|--hostfile|--resume": "test_collect_clusters.py",
    r"numerics": "test_cli_numerics.py",
    r"^unhang (rehearse|reproduce|fix)": "test_rehearse.py",
    r"^unhang demo( --case \S+)?$": "test_cli_demo.py",
    r"attach ": "test_pausing_live.py",
    r"--pid |--tree |--native|^unhang stacks$": "test_stacks_live.py",
    r"stacks --(save|format speedscope)": "test_stacks_live.py",
    r"trace --syscalls (\d+|-- )": "test_cli_trace.py",
    r"^unhang dump( --job.*| --no-stacks| --list)?$|^unhang collect$": "test_collect_tools.py",
}
"""What is run where, with the real thing."""

LINE = re.compile(
    r"^\s*(?:\$ )?((?:kubectl logs [^|]*\| )?(?:srun|torchrun|unhang) [^#\n]*[^#\s])", re.MULTILINE
)
STARTS = re.compile(r"(?:unhang|srun .*unhang|torchrun .*unhang|kubectl .*unhang) [a-z]")
STAYS = ("serve", "mcp", "--watch", "logs -f", "run --serve")
PLACES = dict(
    line.strip().split(" | ", 1)
    for line in """
    /tmp/dumps | dumps
    '/tmp/fr*' | 'dumps/*'
    /tmp/nccl_trace | dumps
    /var/crash/ | cores/
    /var/lib/node_exporter/ | ./
    /shared/incident | incident
    /shared/unhang-cases | unhang-cases
    /shared/cases | unhang-cases
    /var/lib/unhang | fleet
    ~/.unhang-token | token
    /opt/env/bin/python3 | /bin/sleep
    --port 8770 | --port 0
    ~/.local/share/bash-completion/completions/ | ./
    "${fpath[1]}/_unhang" | ./_unhang
    https://hooks.slack.com/services/T000/B000/xyz | http://127.0.0.1:9/
    trace -- torchrun | trace --dir one -- torchrun
    trace --include | trace --dir two --include
    --show unhang-trace-20251120-101500 | --show two
    unhang stacks --format tree -o | unhang stacks stacks.txt --format tree -o
    --group tp | --group TENSOR_MODEL_PARALLEL_GROUP
    … | .
    """.strip().splitlines()
)
"""Where the folder has what a page names."""


def commands() -> Iterator[str]:
    """Every line of a shell block that begins with our name, once."""
    seen = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"```(?:sh|console|)\n(.*?)```", text, re.DOTALL)
        blocks += re.findall(r"^    (?:\$ )?(unhang .*)$", text, re.MULTILINE)
        for block in blocks:
            for found in LINE.findall(block.replace("\\\n", " ")):
                if STARTS.match(found) and not found.endswith((":", "|")) and found not in seen:
                    seen.add(found)
                    yield found


HERE = [line for line in commands() if not any(re.search(each, line) for each in ELSEWHERE)]


STRACE = """openat(AT_FDCWD, "/ckpt/step_100", O_WRONLY|O_CREAT, 0666) = 3
write(3</ckpt/step_100>, "x"..., 4096) = -1 ENOSPC (No space left on device)
+++ exited with 1 +++
"""


def ras() -> str:
    """What NCCL's RAS prints of two ranks, of which one has launched less."""
    ranks = [
        {
            "rank": n, "host": "192.0.2.1", "pid": 4100 + n, "cuda_dev": n, "nvml_dev": n,
            "status": {"init_state": 0, "async_error": 0, "abort_flag": False},
            "collective_counts": {"AllReduce": 9 - n},
        }
        for n in range(2)
    ]  # fmt: skip
    group = {"hash": "0xa", "size": 2, "ranks": ranks, "missing_ranks": []}
    more = {"collection_time_sec": 0.0, "timeouts_count": 0}
    return json.dumps({"nccl_version": "2.28.9", "communicators": [group], "ras": more})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the docs speak of: dumps, logs, cases, core files, reports, programs."""
    here = tmp_path_factory.mktemp("docs")
    simulate(CaseSpec("tp", "skipped-call", "tp", 8, "plain", 0), here)
    dumps, case = here / "dumps", here / "unhang-cases" / "20260102-030405-4711"
    for place in (here / "hang", case):
        shutil.copytree(dumps, place / "dumps")
    shutil.copytree(ROOT / "examples", here / "examples")
    shutil.copytree(ROOT / "docs" / "samples", here / "docs" / "samples")
    with tarfile.open(here / "job.tar.gz", "w:gz") as archive:
        archive.add(dumps, "dumps")
    (here / "cores").mkdir()
    for name in ("core.4711", "cores/core.1"):
        shutil.copy(ROOT / "tests" / "data" / "cores" / "sleep-segv.core", here / name)
    (here / "logs").mkdir()
    (here / "torchrun-logs").mkdir()
    for name in ("train.log", "logs/a.err", "torchrun-logs/0.log"):
        shutil.copy(ROOT / "docs" / "samples" / "disk-full.log", here / name)
    (case / "logs").mkdir()
    for path in (here / "good-run.log", case / "logs" / "rank_0.log"):
        path.write_text("".join(f"step {n} loss 0.5\n" for n in range(50)))
    (here / "train.py").write_text("import mypackage\nmypackage.step()\n")
    (here / "mypackage.py").write_text("def step():\n    print('trained')\n")
    (here / "saved-stacks").mkdir()
    saved = [f"saved-stacks/rank_{rank}.txt" for rank in (0, 1, 2, 3, 7)]
    (here / "issue.md").write_text("It fails:\n```\n[rank0]: ValueError: no labels\n```\n")
    (here / "what-the-user-sent").mkdir()
    pasted = ("rank0-stack.txt", "rank1-stack.txt", "what-the-user-sent/stacks")
    for name in ("stacks.txt", "trace-n1.out", *pasted, *saved):
        shutil.copy(ROOT / "tests" / "data" / "stacks" / "gdb_all_bt.txt", here / name)
    (here / "strace.txt").write_text(STRACE)
    (here / "doctor.json").write_text(render("json", never_joined()))
    (here / "ras.json").write_text(ras())
    (here / "token").write_text("0123456789abcdef0123456789abcdef\n")
    (here / "token").chmod(0o600)
    return here


@pytest.fixture(scope="module")
def environ(folder: Path) -> dict[str, str]:
    """Stand-ins first on the path, then our own command."""
    tools = folder / "tools"
    tools.mkdir()
    for name in ("torchrun", "accelerate", "deepspeed", "mail"):
        (tools / name).write_text("#!/bin/sh\nexit 0\n")
    (tools / "kubectl").write_text("#!/bin/sh\ncat train.log\n")
    (tools / "ssh").write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    (tools / "unhang").write_text(f'#!/bin/sh\nexec {sys.executable} -m unhang "$@"\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    own = {"PATH": f"{tools}:{os.environ['PATH']}", "UNHANG_RUNTIME_DIR": str(folder / "runtime")}
    return {**os.environ, **own, "BROWSER": "true"}


def failure(line: str, folder: Path, environ: dict[str, str]) -> str:
    """What is wrong with it: usage, a traceback, unreadable input; "" if nothing is.

    What stays is ended once it has said something. Stacks and system calls of one process are
    not enough evidence.
    """
    for named, place in PLACES.items():
        line = line.replace(named, place)
    process = subprocess.Popen(
        ["bash", "-c", line], cwd=folder, env=environ, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    if any(word in line for word in STAYS):
        process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate()
    allowed = (0, 1, 3) if re.search("unhang (stacks|paste|top)|--syscalls", line) else (0, 1)
    ended = process.returncode in (*allowed, -signal.SIGINT, 128 + signal.SIGINT)
    # Other tests run jobs on this node at the same time.
    ended = ended or (process.returncode == 2 and "several jobs run on this node" in errors)
    return "" if ended and "Traceback" not in errors else f"{process.returncode}: {errors[-400:]}"


def test_commands_of_the_docs_run(folder: Path, environ: dict[str, str]) -> None:
    """One after the other, as one writes what another reads."""
    assert len(HERE) > 60
    failed = {line: why for line in HERE if (why := failure(line, folder, environ))}
    assert failed == {}, "\n".join(f"{line}\n    {why}" for line, why in failed.items())


def test_the_rest_is_run_with_real_nodes_and_ranks() -> None:
    """Each of the other tests is there and speaks of what it is named for."""
    for line in set(commands()) - set(HERE):
        names = [name for each, name in ELSEWHERE.items() if re.search(each, line)]
        text = "".join((TESTS / name).read_text() for name in names)
        words = [word for word in re.findall(r"--[a-z-]+|(?<=unhang )[a-z]+", line) if word in text]
        assert words, line
