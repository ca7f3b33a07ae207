"""Where a limit of processes leaves no room for a thread, the watch makes do without it."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from unhang.casedir.manifest import NodePart, create_case
from unhang.record import headroom
from unhang.run import metrics
from unhang.run.docket import Docket
from unhang.run.incident.evidence import _at_once
from unhang.run.incident.handling import NodeIncident, What
from unhang.run.incident.verdict import Verdict
from unhang.run.metrics import Meter


@pytest.fixture(autouse=True)
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under ulimit -u: no thread can be started."""

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)


def test_all_ranks_are_asked() -> None:
    """One after another, in the thread that there is."""
    ranks: list[Any] = [SimpleNamespace(number=number) for number in range(3)]
    assert _at_once(lambda rank: rank.number * 2, ranks) == [0, 2, 4]
    assert _at_once(lambda rank: rank, []) == []


def test_stacks_that_would_need_a_thread_are_left_out_and_that_is_said(tmp_path: Path) -> None:
    """Ranks may let us wait for them; the verdict stands without."""
    case = create_case(tmp_path, "job", 1.0)
    part = NodePart(run="run", host="node01", job="job", attempt=0, world_size=2)
    incident = NodeIncident(SimpleNamespace(), What("hang", "stuck"), case=case, _part=part)  # type: ignore[arg-type]  # nothing of it is asked
    told: list[Verdict] = []
    assert incident.refine(told.append) is None
    assert told == []
    (written,) = (case / "parts").glob("*.json")
    (note,) = json.loads(written.read_text())["notes"]
    assert note.startswith("The stacks of the calls in the dumps were not asked for")


def test_a_job_that_moves_on_is_judged_anew_by_the_watch() -> None:
    """Without a thread it waits for the verdict, and has it."""
    verdict = Verdict("", "healthy")
    incident: Any = SimpleNamespace(amend=lambda **_: True, judge=lambda: verdict)
    context = SimpleNamespace(company=lambda: SimpleNamespace(follows=False))
    stands: list[Verdict] = []
    docket: Any = SimpleNamespace(
        context=context, last=incident, _stand=lambda _, told: stands.append(told),
        _refining=None, _amending=None,
    )  # fmt: skip
    Docket._amend(docket, incident, ended_well=True)
    assert (stands, docket._amending) == ([verdict], None)


def test_a_run_without_metrics_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command runs on, and its end is not waited for in vain."""
    said: list[str] = []
    monkeypatch.setattr(metrics, "say", said.append)
    with Meter(str(tmp_path / "metrics"), "job", lambda: None):
        pass
    assert said == ["no metrics: can't start new thread"]


class Machine:
    """What /proc and the cgroups say of a machine."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
        self.proc, self.groups = folder / "proc", folder / "cgroup"
        monkeypatch.setattr(headroom, "PROC", self.proc)
        monkeypatch.setattr(headroom, "CGROUPS", self.groups)
        monkeypatch.setattr(headroom.os, "cpu_count", lambda: 2)
        monkeypatch.setattr(headroom.resource, "getrlimit", lambda _: (limit, limit))
        self.write("self/cgroup", "0::/kubepods/pod7")
        self.write("self/uid_map", "0 100000 65536\n")  # root of a container, whom limits bind
        self.write("loadavg", "0.1 0.1 0.1 1/900 7")

    def write(self, name: str, text: str, folder: Path | None = None) -> None:
        """Write one of its files."""
        path = (folder or self.proc) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def process(self, pid: int, threads: int) -> None:
        """A process of this user."""
        fields = ["S", *["0"] * 16, str(threads), *["0"] * 20]
        self.write(f"{pid}/stat", f"{pid} (a) name) {' '.join(fields)}")


@pytest.mark.parametrize(
    ("limit", "ranks", "said"),
    [
        (40, 2, "30 of 40 threads of its user are in use"),
        (79, 2, "30 of 79 threads of its user are in use"),
        (80, 2, ""),  # twice nine for the server and sixteen for the rank
        (80, 3, "30 of 80 threads of its user are in use"),
        (55, 0, ""),  # nothing tells of neighbours
        (1000, 2, ""),  # all of the machine's are fewer
        (-1, 2, ""),
    ],
)
def test_threads_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, ranks: int, said: str
) -> None:
    """One thread too many for torch's server ends the rank: it starts where all have room."""
    machine = Machine(tmp_path, monkeypatch, limit)
    machine.process(7, 10)
    machine.process(8, 20)
    assert headroom.few_threads(ranks) == said


@pytest.mark.parametrize(
    ("group", "most", "said"),
    [
        ("kubepods", "40", "30 of 40 threads of its cgroup are in use"),
        ("kubepods/pod7", "40", "30 of 40 threads of its cgroup are in use"),
        ("kubepods/pod7", "max", ""),
        ("kubepods/pod7", "1024", ""),
        ("other", "40", ""),
    ],
)
def test_threads_of_a_cgroup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, most: str, said: str
) -> None:
    """Of the process's own, and of those around it, as kubelets limit pods."""
    machine = Machine(tmp_path, monkeypatch, -1)
    machine.write(f"{group}/pids.current", "30", machine.groups)
    machine.write(f"{group}/pids.max", most, machine.groups)
    assert headroom.few_threads(1) == said


def test_root_is_not_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel does not count for it; only the first user namespace has that root."""
    machine = Machine(tmp_path, monkeypatch, 40)
    machine.process(7, 35)
    own = machine.proc.stat().st_uid
    monkeypatch.setattr(headroom.os, "getuid", lambda: own)
    assert headroom.few_threads(1)
    monkeypatch.setattr(headroom.os, "getuid", lambda: 0)
    machine.write("self/uid_map", "         0          0 4294967295\n")
    assert headroom.few_threads(1) == ""
