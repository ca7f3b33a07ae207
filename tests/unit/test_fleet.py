"""Reports of many jobs in one file: kept for good, found quickly, and what launchers are told."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from unhang.context.fleet import FleetStore
from unhang.serve.app import make_app
from unhang.serve.reception import STORE, fleet_routes

T0_NS = 1_763_640_000_000_000_000
DAY_NS = 86_400 * 10**9
TOKEN = "0123456789abcdef0123456789"  # noqa: S105 - of tests


def report(
    number: int,
    *,
    job: str = "train",
    action: str = "restart",
    place: str = "train.py:88",
    **more: object,
) -> bytes:
    """The report of an incident a day after the one before; node03 is blamed."""
    file, _, line = place.partition(":")
    cause = {
        "code": "UH101", "role": "cause", "confidence": "high", "summary": "x", "culprits": [3],
        "sites": [{"ranks": [3], "role": "culprit", "file": f"/app/{file}", "line": int(line)}],
    }  # fmt: skip
    decision = {"action": action, "reason": "r", "confidence": "high", "text": f"Do {action}."}
    decision["subjects"] = [{"kind": "host", "id": "node03", "role": "culprit"}]  # type: ignore[assignment]
    told = {
        "schema": "unhang.report/1", "status": "problem", "summary": f"Incident {number}.",
        "incident": {"newest_ns": T0_NS + number * DAY_NS, "job_id": job, "attempt": str(number)},
        "findings": [cause], "decision": decision,
        "ranks": [{"rank": rank, "host": f"node{rank:02}"} for rank in range(8)],
    }  # fmt: skip
    return json.dumps({**told, **more}).encode()


def test_a_report_is_kept_once_and_comes_back_as_it_was(tmp_path: Path) -> None:
    """A sender that heard no answer sends again: it is the same report."""
    store = FleetStore(tmp_path / STORE)
    key, is_new = store.keep(report(0))
    assert is_new
    assert store.keep(report(0)) == (key, False)
    store.keep(report(1, job="other"))
    assert store.count() == 2
    assert store.report(key) == report(0)
    assert store.report("none") is None
    assert [kept.past.summary for kept in store.newest(9)] == ["Incident 1.", "Incident 0."]
    (mine,) = store.newest(9, "train")
    assert (mine.past.culprit_hosts, mine.past.places) == (("node03",), ("/app/train.py:88",))


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"{}", b'{"schema": "unhang.report/1", "status": 7}', b"\xff\x00"]
)
def test_what_is_no_report_is_refused(tmp_path: Path, data: bytes) -> None:
    """And nothing of it is kept."""
    store = FleetStore(tmp_path / STORE)
    with pytest.raises(ValueError, match=r"."):
        store.keep(data)
    assert store.count() == 0


@pytest.mark.parametrize(
    ("actions", "budget", "told", "hosts"),
    [
        ([], 3, "restart", ()),
        (["restart"], 3, "restart", ()),
        (["restart-without"], 3, "restart-without", ("node03",)),
        (["fix-code"], 3, "stop", ()),
        (["look-first"], 3, "restart", ()),
        (["restart", "restart"], 3, "restart", ()),
        (["restart", "restart-without", "restart"], 3, "stop", ()),
        (["restart", "restart"], 2, "stop", ()),
    ],
)
def test_a_launcher_is_told_whether_to_start_again(
    tmp_path: Path, actions: list[str], budget: int, told: str, hosts: tuple[str, ...]
) -> None:
    """By the newest decision, until one root has come as often as the budget lets."""
    store = FleetStore(tmp_path / STORE)
    for number, action in enumerate(actions):
        store.keep(report(number, action=action))
    store.keep(report(9, job="another", action="fix-code"))
    answer = store.answer("train", budget)
    assert (answer.action, answer.hosts) == (told, hosts)
    assert (answer.incidents, answer.same_root) == (len(actions), len(actions))


def test_other_roots_do_not_use_up_a_budget_and_low_confidence_advises_nothing(
    tmp_path: Path,
) -> None:
    """Another line is another reason; what is not sure is no advice."""
    store = FleetStore(tmp_path / STORE)
    for number, line in enumerate((88, 12, 40)):
        store.keep(report(number, place=f"train.py:{line}"))
    assert store.answer("train", 3).action == "restart"
    unsure = {"action": "fix-code", "reason": "r", "confidence": "low", "text": "t"}
    store.keep(report(4, place="data.py:7", decision=unsure))
    answer = store.answer("train", 3)
    assert (answer.action, answer.reason, answer.same_root) == ("restart", "no-advice", 1)


def test_a_host_that_is_blamed_in_every_job_is_a_suspect(tmp_path: Path) -> None:
    """Over the whole fleet, with the chance that it is none."""
    store = FleetStore(tmp_path / STORE)
    for number in range(6):
        store.keep(report(number, job=f"job-{number}"))
    answer = store.answer("job-0")
    assert [(host.name, host.count) for host in answer.suspects] == [("node03", 6)]


WRITER = """
import sys
from pathlib import Path
sys.path[:0] = {paths!r}
from test_fleet import FleetStore, report
store = FleetStore(Path({store!r}))
for number in range(int(sys.argv[2])):
    print(store.keep(report(number, job=sys.argv[1]))[0], flush=True)
"""


def writer(store: Path, name: str, count: int) -> subprocess.Popen[str]:
    """A process of its own that keeps reports, and prints each key once it is acknowledged."""
    text = WRITER.format(paths=sys.path, store=str(store))
    command = [sys.executable, "-c", text, name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ})


def test_two_writers_lose_nothing_and_a_killed_one_nothing_acknowledged(tmp_path: Path) -> None:
    """One is killed in the middle of its work; the other ends well."""
    store = FleetStore(tmp_path / STORE)
    killed, whole = writer(tmp_path / STORE, "a", 100_000), writer(tmp_path / STORE, "b", 20)
    assert killed.stdout is not None
    told = [killed.stdout.readline().strip() for _ in range(10)]
    killed.send_signal(signal.SIGKILL)
    rest = killed.stdout.read().split("\n")
    told += [each.strip() for each in rest[:-1]]  # the last line may be cut
    ended = whole.communicate(timeout=240)[0].split()
    killed.wait(60)
    assert len(told) >= 10
    assert len(ended) == 20
    assert all(store.report(key) is not None for key in (*told, *ended))
    with sqlite3.connect(tmp_path / STORE) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def client(folder: Path) -> TestClient:
    """The server with a store, asked with its token."""
    app = make_app([], TOKEN, more=fleet_routes(folder))
    headers = {"authorization": f"Bearer {TOKEN}"}
    return TestClient(app, base_url="http://127.0.0.1:8770", headers=headers)  # type: ignore[arg-type]


def test_reports_come_by_http_with_the_token_alone(tmp_path: Path) -> None:
    """201 for what is new, 200 for what was there, and a reason for what is refused."""
    with client(tmp_path) as asked:
        first = asked.post("/fleet", content=report(0))
        assert (first.status_code, first.json()["new"]) == (201, True)
        assert asked.post("/fleet", content=report(0)).status_code == 200
        assert "is no report" in asked.post("/fleet", content=b"{}").json()["error"]
        assert asked.get(f"/fleet/report/{first.json()['key']}").content == report(0)
        assert asked.get("/fleet/report/none").status_code == 404
        found = asked.get("/fleet?job=train").json()
        assert (found["reports"], found["newest"][0]["code"]) == (1, "UH101")
        assert asked.get("/fleet/answer?job=train").json()["action"] == "restart"
        for wrong in (
            "/fleet/answer",
            "/fleet/answer?job=a&budget=0",
            "/fleet/answer?job=a&budget=x",
        ):
            assert asked.get(wrong).status_code == 400
        asked.headers["authorization"] = "Bearer wrong"
        assert asked.post("/fleet", content=report(1)).status_code == 403
        assert asked.get("/fleet").status_code == 403
    assert FleetStore(tmp_path / STORE).count() == 1
