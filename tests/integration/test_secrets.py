"""Secrets do not leave: planted in every source of a real job, looked for in everything kept of it.

Every planted secret has `PLANTED` in it. What only a redacted copy leaves out (values of options
that nobody knows) has `UNKNOWN` in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import needs_torch
from ports import free_port
from run_jobs import PATIENCE_S, environment

pytestmark = needs_torch

PROGRAM = Path(__file__).parent / "programs" / "leaky_rank.py"
UNHANG = [sys.executable, "-m", "unhang"]
PLANTED, UNKNOWN = "pLanTed", "cOnfIdential"

OPTIONS = [
    "--password", f"{PLANTED}01", f"--db-pass={PLANTED}02", "--pw", f"{PLANTED}03",
    "--wandb-key", f"{PLANTED}04", f"--hf-token={PLANTED}05", "--lr", "0.1",
    "--data", f"https://u:{PLANTED}06@store.example.org/d?sig={PLANTED}07&v=1",
    "--db", f"app:{PLANTED}08@db.example.org:5432", f"model.api_key={PLANTED}09",
    f"--env=WANDB_KEY={PLANTED}10", "--header", f"Authorization: Bearer {PLANTED}11",
    "--project", f"{UNKNOWN}1", f"run.name={UNKNOWN}2", f"{UNKNOWN}3",
]  # fmt: skip
VARIABLES = {
    "NCCL_PLUGIN_TOKEN": f"{PLANTED}20",
    "RAY_REDIS_PASSWORD": f"{PLANTED}21",
    "MPI_LICENSE_KEY": f"{PLANTED}22",
    "WANDB_API_KEY": f"{PLANTED}23",
    "DB_PASS": f"{PLANTED}24",
    "TORCH_HOME_URL": f"https://store.example.org/d?X-Amz-Signature={PLANTED}25&v=1",
    "RAY_NOTE": f"{UNKNOWN}4",
}
SAID = {
    "local": f"{PLANTED}30",
    "error": f"no access to postgres://app:{PLANTED}31@db.example.org/x with token={PLANTED}32",
    "lines": [
        f"connecting with password={PLANTED}40 and token: {PLANTED}41",
        f"GET https://store.example.org/d?X-Amz-Credential={PLANTED}42&X-Amz-Signature={PLANTED}43",
        f'{{"api_key": "{PLANTED}44 with blanks", "step": 3}}',
        f"Authorization: Bearer {PLANTED}45",
        f"-----BEGIN RSA PRIVATE KEY-----\n{PLANTED}46\n-----END RSA PRIVATE KEY-----",
        f"RuntimeError: cannot log in as app:{PLANTED}47@db.example.org",
    ],
}


def job(folder: Path, fault: str, *options: str) -> tuple[list[str], dict[str, str]]:
    """The command and environment of a leaky job under `unhang run`."""
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    env = {**environment(folder), **where, **VARIABLES, "SAID": json.dumps(SAID)}
    command = [*UNHANG, "run", *options, "--", sys.executable, str(PROGRAM), fault, *OPTIONS]
    return command, env


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The case of a job in which a rank raised."""
    folder = tmp_path_factory.mktemp("failed")
    command, env = job(folder, "fails", "--case", "case")
    with (folder / "log").open("wb") as log:
        subprocess.run(
            command,
            cwd=folder,
            env=env,
            stdout=log,
            stderr=log,
            timeout=PATIENCE_S,
            check=False,
            umask=0,
        )
    assert f"{PLANTED}40" in (folder / "log").read_text()
    return folder / "case"


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """The case of a job that hangs, and what `unhang collect` brings of the same job."""
    folder = tmp_path_factory.mktemp("hung")
    command, env = job(folder, "hangs", "--case", "case", "--hang-after", "4", "--job", "leaky")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdout=log,
            stderr=log,
            start_new_session=True,
            umask=0,
        )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while "the evidence is in" not in (folder / "log").read_text():
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.05)
        words = ["collect", "--job", "leaky", "--case", "collected", "--logs", str(folder / "log")]
        done = unhang(folder, *words, env=env)
        assert "ranks 0-1" in done.stdout, done.stdout + done.stderr
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(PATIENCE_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return folder / "case", folder / "collected"


def unhang(
    folder: Path, *words: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of ours to its end, under a umask that forbids nothing."""
    return subprocess.run(
        [*UNHANG, *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        umask=0,
    )


@pytest.fixture(params=["failed", "hung", "collected"])
def case(request: pytest.FixtureRequest) -> Path:
    """Each of the cases."""
    if request.param == "failed":
        return Path(request.getfixturevalue("failed"))
    both: tuple[Path, Path] = request.getfixturevalue("hung")
    return both[request.param == "collected"]


def leaks(root: Path, word: str) -> list[str]:
    """Files below a directory in whose content or name a word is, and where in it."""
    found = []
    for path in sorted(root.rglob("*")):
        data = path.read_bytes() if path.is_file() else b""
        place = data.find(word.encode())
        if place >= 0 or word in path.name:
            found.append(f"{path.relative_to(root)}: {data[max(place - 60, 0) : place + 30]!r}")
    return found


def evidence(root: Path) -> set[str]:
    """The folders of a case in which there is something."""
    return {path.relative_to(root).parts[0] for path in root.rglob("*") if path.is_file()}


def test_no_secret_is_in_a_case(case: Path) -> None:
    """Neither in dumps and stacks, nor in logs, environments, parts, manifest and reports."""
    assert {"dumps", "stacks", "logs", "env", "parts", "manifest.json"} <= evidence(case)
    assert leaks(case, PLANTED) == []
    command = json.loads((case / "manifest.json").read_text())["job"]["command"]
    assert {"--password", "--lr", "0.1"} <= set(command)


def test_a_case_is_its_owners_alone(case: Path) -> None:
    """Directories 0700 and files 0600, though the umask forbids nothing."""
    modes = {
        str(path.relative_to(case)): stat.S_IMODE(path.stat().st_mode)
        for path in (case, *case.rglob("*"))
    }
    wrong = {
        name: oct(mode)
        for name, mode in modes.items()
        if mode != (0o700 if (case / name).is_dir() else 0o600)
    }
    assert wrong == {}


def test_nothing_unknown_is_in_a_redacted_copy(case: Path, tmp_path: Path) -> None:
    """Values of options and variables that nobody knows are dropped, and the verdict stays."""
    copy = tmp_path / "copy"
    done = unhang(tmp_path, "collect", "--redact", str(case), "--case", str(copy))
    assert done.returncode == 0, done.stderr
    assert leaks(copy, PLANTED) + leaks(copy, UNKNOWN) == []
    assert stat.S_IMODE(copy.stat().st_mode) == 0o700
    kept = tmp_path / "kept"  # No copy has rings of last calls: their names are in machine words.
    shutil.copytree(case, kept, ignore=shutil.ignore_patterns("calls"))
    before, after = (
        json.loads(unhang(tmp_path, "diagnose", str(root), "--format", "json").stdout)
        for root in (kept, copy)
    )
    assert before["findings"][0]["code"] == after["findings"][0]["code"]
    assert sorted(f["code"] for f in before["findings"]) == sorted(
        f["code"] for f in after["findings"]
    )


@pytest.mark.parametrize("redact", [(), ("--redact",)])
def test_no_secret_is_in_what_is_made_of_a_case(
    case: Path, tmp_path: Path, redact: tuple[str, ...]
) -> None:
    """No format of the report and no table has one."""
    import duckdb

    for suffix in ("txt", "json", "md", "html"):
        output = tmp_path / f"report.{suffix}"
        done = unhang(tmp_path, "diagnose", str(case), *redact, "-o", str(output))
        assert output.is_file(), done.stderr
        assert output.stat().st_size > 100
    unhang(tmp_path, "diagnose", str(case), *redact, "--db", "case.duckdb", "--parquet", "tables")
    for path in sorted((tmp_path / "tables").glob("*.parquet")):
        rows = duckdb.sql(f"SELECT * FROM '{path}'").fetchall()  # noqa: S608 - our own file
        path.with_suffix(".rows").write_text(repr(rows))
    with duckdb.connect(str(tmp_path / "case.duckdb"), read_only=True) as tables:
        for (name,) in tables.sql("SHOW TABLES").fetchall():
            rows = tables.sql(f"SELECT * FROM {name}").fetchall()  # noqa: S608 - our own file
            (tmp_path / f"{name}.db.rows").write_text(repr(rows))
    assert len(list(tmp_path.rglob("*.rows"))) > 20
    assert leaks(tmp_path, PLANTED) == []
    if redact:
        assert leaks(tmp_path, UNKNOWN) == []
