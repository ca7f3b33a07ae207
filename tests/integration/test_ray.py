"""A real Ray cluster of two nodes, and a real S3 server: dumps are reduced where they are.

Both nodes run on this machine and see the same files, but for one folder: the second node has its
own under that name.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from command_line import unhang
from patience import PATIENCE_S, wait_for
from ports import free_ports

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "programs" / "ray_verdicts.py"
CAPTURES = ROOT / "tests" / "data" / "nccl" / "2.9.1"
SAMPLE = ("healthy_pipe-pipe", "skipped_call-timeout", "slow_rank-pipe", "p2p_circle-pipe")

PATIENT_RAY = {
    "RAY_gcs_server_request_timeout_seconds": "300",
    "RAY_health_check_failure_threshold": "100",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_AUTH_MODE": "disabled",
}
"""A node of a machine that is busy is slow, and not dead. A head of Ray 2.60 may ask for a token
that lies in the home directory from another cluster."""

SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=testing/20250101/us-east-1/s3/aws4_request"}
"""The server looks whether a request is signed, and not by whom."""

OWN_FOLDER = 'mount --bind "$0" "$1" && shift && exec "$@"'

pytestmark = pytest.mark.debian("unshare")


@dataclass(frozen=True)
class Place:
    """A cluster.

    Attributes:
        address: Of its head.
        store: URL of the S3 server that its nodes know.
        local: A folder that each node has for itself; this process sees that of the first one.
        second: What the second node has there.
    """

    address: str
    store: str
    local: Path
    second: Path

    def diagnose(self, *words: object, **options: Any) -> subprocess.CompletedProcess[str]:  # noqa: ANN401 - as they are
        """Run `unhang diagnose` on the cluster."""
        return unhang("diagnose", "--engine", f"ray:{self.address}", *words, **options)

    def compared(self, *paths: object, mark: object = "-") -> list[str]:
        """Whether verdicts are the same, by PATH; then the last progress."""
        words = [sys.executable, PROGRAM, self.address, mark, *paths]
        done = subprocess.run(
            [*map(str, words)], cwd=ROOT, capture_output=True, text=True, check=False,
            timeout=PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        sys.stderr.write(done.stderr)  # what differs
        return done.stdout.splitlines()

    def put(self, name: str, data: bytes = b"") -> int:
        """Make a bucket, or an object; returns when that was, in seconds."""
        server = HTTPConnection(self.store.removeprefix("http://"), timeout=PATIENCE_S)
        for method, body in (("PUT", data), ("HEAD", None)):
            server.request(method, f"/{name}", body, SIGNED)
            answer = server.getresponse()
            answer.read()
            assert answer.status == 200
        when = answer.headers.get("Last-Modified")
        return int(parsedate_to_datetime(when).timestamp()) if when else 0


def listens(port: int) -> bool:
    """Whether somebody does."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def nodes_of(address: str) -> int:
    """How many nodes the cluster has; Ray may print empty lines after them, or what it tries."""
    words = [sys.executable, "-m", "unhang.collect.launchers.ray", address]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    last = done.stdout.strip().rpartition("\n")[2]
    return len(json.loads(last)) if done.returncode == 0 and last.startswith("[") else 0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The cluster and the store."""
    port, store = free_ports(2)
    root = tmp_path_factory.mktemp("ray")
    (local := root / "local").mkdir()
    (second := root / "second").mkdir()
    found = Place(f"127.0.0.1:{port}", f"http://127.0.0.1:{store}", local, second)
    small = ["--block", "--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats"]
    folder = f"/tmp/ray-{port}"  # noqa: S108 - Ray's sockets need a short path
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", *small]
    head = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}"]
    apart = ["unshare", "-m", "sh", "-c", OWN_FOLDER, str(second), str(local)]
    environ = {
        **os.environ, **PATIENT_RAY, "AWS_ENDPOINT_URL": found.store,
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
    }  # fmt: skip
    log = (root / "log").open("w")
    quiet: Any = {"stdout": log, "stderr": log, "start_new_session": True, "env": environ}
    started: list[subprocess.Popen[bytes]] = []

    def has_started(words: list[str], ready: Callable[[], bool], what: str) -> None:
        """Start a program; one that gave up, as Ray does on a slow machine, once more."""

        def seen() -> bool:
            if started[-1].poll() is not None:
                started[-1] = subprocess.Popen(words, **quiet)
            return ready()

        started.append(subprocess.Popen(words, **quiet))
        wait_for(seen, what)

    try:
        server = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(store)]
        has_started(server, lambda: listens(store), "the S3 server")
        has_started([*start, *head], lambda: listens(port), "Ray's head")
        more = [*apart, *start, f"--address={found.address}"]
        has_started(more, lambda: nodes_of(found.address) == 2, "Ray's second node")
        yield found
    finally:
        for each in reversed(started):
            each.terminate()
        for each in reversed(started):
            each.wait()
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Folders of dumps that NCCL's recorder really wrote, and of one that is cut short."""
    folder = tmp_path_factory.mktemp("captures")
    for name in SAMPLE:
        with tarfile.open(CAPTURES / f"{name}.tar.gz") as archive:
            archive.extractall(folder / name, filter="data")
    shutil.copytree(folder / SAMPLE[1], torn := folder / "torn")
    first = min(path for path in torn.rglob("*") if path.is_file())
    first.write_bytes(first.read_bytes()[:700])
    return [folder / name for name in (*SAMPLE, "torn")]


def test_ray_tasks_reach_every_node(place: Place, tmp_path: Path) -> None:
    """`collect` runs one task on each node of a real cluster, each node with a name of its own."""
    words = ("--ray", place.address, "--only", "env", "--job", "x", "--case", tmp_path / "case")
    done = unhang("collect", *words)
    assert "from 2 nodes" in done.stdout, done.stderr
    assert len(list((tmp_path / "case" / "env").rglob("node.json"))) == 2


def test_reports_are_the_same_to_the_byte(place: Place, captures: list[Path]) -> None:
    """Of examples, relative as users name them, of captures and of an archive, in many shares."""
    examples = sorted(path.relative_to(ROOT) for path in (ROOT / "examples").glob("*/dumps"))
    more = [CAPTURES / f"{SAMPLE[0]}.tar.gz", f"file://{captures[0]}"]
    told = place.compared(*examples, *examples[0].parents[:1], *captures, *more)
    assert [line for line in told if line.startswith("differs")] == []
    assert sum(line.startswith("same") for line in told) == len(examples) + 1 + len(captures) + 2
    _, done, total = told[-1].split()
    assert done == total


def test_a_worker_that_is_killed_changes_nothing(
    place: Place, captures: list[Path], tmp_path: Path
) -> None:
    """Its share is read once more."""
    mark = tmp_path / "killed"
    (line, _) = place.compared(captures[1], mark=mark)
    assert (line.split()[0], mark.exists()) == ("same", True)


def test_dumps_are_read_from_a_store(place: Place, captures: list[Path]) -> None:
    """From a real S3 server, which the nodes know and this process does not."""
    place.put("jobs")
    files = [path for path in captures[-1].rglob("*") if path.is_file()]
    for path in files:
        when = place.put(f"jobs/run%207/{path.name}", path.read_bytes())
        os.utime(path, (when, when))
    plain = unhang("diagnose", files[0].parent, "--format", "json")
    done = place.diagnose("s3://jobs/run 7/", "--format", "json")
    assert done.returncode == plain.returncode, done.stderr
    told = json.loads(done.stdout.replace("s3://jobs/run 7", str(files[0].parent)))
    here = json.loads(plain.stdout)
    assert {**told, "next": []} == {**here, "next": []}  # no command reads a store without engine
    hidden = place.diagnose("s3://jobs/run 7", "--redact", "--format", "json")
    assert "jobs" not in hidden.stdout.replace('"job', "")


def test_what_is_not_in_a_store_is_said(place: Place) -> None:
    """A folder that is not there, and a store that has no library."""
    done = place.diagnose("s3://nobody/nothing")
    assert (done.returncode, "no file or directory 's3://nobody/nothing'" in done.stderr) == (
        3,
        True,
    )
    done = place.diagnose("gs://bucket/run")
    assert (done.returncode, "gcsfs" in done.stderr, "Traceback" in done.stderr) == (3, True, False)


def test_each_node_reads_what_it_alone_has(place: Place, captures: list[Path]) -> None:
    """The same verdict as with all files in one place; and which node had nothing is said."""
    files = sorted(path for path in captures[1].rglob("*") if path.is_file())
    for at, path in enumerate(files):
        shutil.copy2(path, (place.local, place.second)[at % 2])
    done = place.diagnose(place.local, "--format", "json")
    told, plain = json.loads(done.stdout), unhang("diagnose", captures[1], "--format", "json")
    whole = json.loads(plain.stdout)
    hosts = {subject.pop("host") for subject in told["decision"]["subjects"]}
    assert hosts < {rank["host"] for rank in told["ranks"]}
    assert {subject.pop("host") for subject in whole["decision"]["subjects"]} == {None}
    for key in ("status", "summary", "job", "findings", "decision"):
        assert told[key] == whole[key], key
    assert len({rank["host"] for rank in told["ranks"]}) == 2
    for path in place.second.iterdir():
        path.unlink()
    alone = json.loads(place.diagnose(place.local, "--format", "json").stdout)
    assert "1 node of the cluster had no files there" in str(alone["notes"])


def test_a_path_that_no_node_has_is_said(place: Place, tmp_path: Path) -> None:
    """In a sentence, with what was asked."""
    done = place.diagnose("nothing-here", cwd=tmp_path)
    assert done.returncode == 3
    assert "no file or directory 'nothing-here' on any of 2 nodes of the cluster" in done.stderr
