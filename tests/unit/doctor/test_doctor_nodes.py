"""How the doctor reaches nodes: addresses, places in a job, what travels, what comes back."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from unhang.collect.launchers.local import Local
from unhang.collect.ship import collector_zip
from unhang.doctor.agents.node import examine
from unhang.doctor.agents.ranks import Trace, _hear_lines
from unhang.doctor.asking.joined import (
    PREFIX,
    Seat,
    _first,
    _serve,
    expected_hosts,
    one_per_machine,
    seat_of,
)
from unhang.doctor.asking.nodes import SHIPMENT, Launched, Node, address_of, split_addresses
from unhang.doctor.checks.shapes import misfit, rows_of
from unhang.errors import ToolError, UsageError


def test_hosts_with_addresses() -> None:
    """Names go on to the launcher, addresses stay with us."""
    told = split_addresses("node[01-03],a=10.0.0.1,b=fd00::2")
    assert told == ("node[01-03],a,b", {"a": "10.0.0.1", "b": "fd00::2"})
    with pytest.raises(UsageError, match="names no address"):
        split_addresses("a=elsewhere")


def interface(name: str, address: str, kind: str = "ethernet") -> dict[str, Any]:
    """An interface that is up."""
    return {"name": name, "address": address, "kind": kind, "up": True}


@pytest.mark.parametrize(
    ("name", "named", "expected"),
    [
        ("10.9.9.9", [], "10.9.9.9"),
        ("user@10.9.9.9", [], "10.9.9.9"),
        ("node01", ["10.0.0.2"], "10.0.0.2"),
        ("node01", ["127.0.1.1"], "10.0.0.1"),
    ],
)
def test_where_peers_reach_a_node(name: str, named: list[str], expected: str) -> None:
    """Its name's own address, never the loopback, a container's bridge or a link-local one."""
    interfaces = [
        interface("lo", "127.0.0.1", "loopback"), interface("docker0", "172.17.0.1", "bridge"),
        interface("eth9", "169.254.0.1"), interface("eth0", "10.0.0.1"),
        interface("eth1", "10.0.0.2"),
    ]  # fmt: skip
    facts = {"interfaces": interfaces, "own_name": {"addresses": named}}
    assert address_of(name, facts) == expected
    assert address_of("node01", {"interfaces": interfaces[:3]}) == ""


@pytest.mark.parametrize(
    ("environ", "seat"),
    [
        ({}, None),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, None),  # a batch script, not a step
        (
            {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "a",
             "MASTER_PORT": "77", "TORCHELASTIC_USE_AGENT_STORE": "True"},
            Seat(3, 8, 1, "a", 77, serves=False),
        ),
        (
            {"RANK": "0", "WORLD_SIZE": "8", "MASTER_ADDR": "a"},
            Seat(0, 8, 0, "a", 29500, serves=True),
        ),
        (
            {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "2",
             "SLURM_LOCALID": "0", "SLURM_STEP_NODELIST": "n[07-08]", "SLURM_STEP_NUM_NODES": "2"},
            Seat(2, 4, 0, "n07", 29500, serves=False),
        ),
        (
            {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1",
             "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
            Seat(1, 2, 1, "127.0.0.1", 29500, serves=False),
        ),
        ({"RANK": "x", "WORLD_SIZE": "8"}, None),
        ({"RANK": "9", "WORLD_SIZE": "8"}, None),
    ],
)  # fmt: skip
def test_the_place_in_a_job(environ: dict[str, str], seat: Seat | None) -> None:
    """As torchrun, srun and mpirun tell it; rubbish is no place."""
    assert seat_of(environ) == seat


def test_a_rank_that_cannot_know_where_the_first_one_is() -> None:
    """It says which variable is missing."""
    with pytest.raises(UsageError, match="MASTER_ADDR"):
        seat_of({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "1"})


def rank(number: int, host: str) -> Node:
    """A rank that came."""
    return Node(f"rank {number}", "10.0.0.1", host, (1,), number, 0)


def test_where_absent_ranks_should_be() -> None:
    """From SLURM's blocks or torchrun's, unless a rank that came says otherwise."""
    slurm = {"SLURM_STEP_TASKS_PER_NODE": "2(x2),1", "SLURM_STEP_NODELIST": "n[1-3]"}
    came = [rank(0, "n1"), rank(2, "n2")]
    assert expected_hosts(slurm, came, [1, 3, 4]) == {1: "n1", 3: "n2", 4: "n3"}
    assert expected_hosts(slurm, [*came, rank(1, "n2")], [3]) == {}
    torchrun = {"LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x"}
    assert expected_hosts(torchrun, came, [1, 4]) == {1: "n1"}
    assert expected_hosts({}, came, [1]) == {}


def test_one_rank_speaks_for_each_machine() -> None:
    """The first one, under the machine's name."""
    nodes = one_per_machine([rank(0, "a"), rank(1, "a"), rank(2, "b")])
    assert [(node.name, node.rank) for node in nodes] == [("a", 0), ("b", 2)]


def test_what_travels_is_all_that_a_node_needs(tmp_path: Path) -> None:
    """A Python without our packages answers from the zip alone, with facts of the right shape."""
    archive = tmp_path / "doctor.zip"
    archive.write_bytes(collector_zip(SHIPMENT.modules, with_py_spy=False))
    names = zipfile.ZipFile(archive).namelist()
    assert "unhang/doctor/agents/comm.py" in names
    assert len(names) < 32
    code = (
        f"import sys, json; sys.path.insert(0, {str(archive)!r})\n"
        "from unhang.doctor.agents import source_of\n"
        "from unhang.doctor.agents.node import AGENTS, examine\n"
        "import unhang.doctor.agents.ranks, unhang.doctor.agents.net, unhang.doctor.agents.gpu\n"
        "assert 'init_process_group' in source_of('comm')\n"
        "print(json.dumps(examine('facts', {})))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, check=True, cwd=tmp_path
    )
    facts = json.loads(done.stdout)
    assert misfit(facts) == ""
    assert facts["host"] == socket.gethostname()


def test_this_node_answers_and_says_why_it_cannot() -> None:
    """Through a real shell; an agent that fails is an error in its own words."""
    asking = Launched(Local(), sys.executable, ship=False)
    node = Node(*Local().nodes())
    (answer,) = asking.ask([node], "facts", {}, 60)
    assert (answer.error, answer.data["host"]) == ("", socket.gethostname())
    (answer,) = asking.ask([node], "net", {node.name: {"me": "x"}}, 60)
    assert answer.error.startswith("KeyError: 'ports' (net.py:")
    assert examine("nonsense", {}) == {"failed": "there is no agent 'nonsense'"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("settings", None),
        ("settings", {"A": 1}),
        ("interfaces", [{"name": "eth0"}]),
        ("limits", []),
        ("own_name", {"addresses": ["nowhere"], "error": ""}),
        ("time_ns", "now"),
    ],
)
def test_facts_that_are_none_are_not_judged(key: str, value: object) -> None:
    """What a node sends is from outside."""
    facts = examine("facts", {})
    assert misfit(facts) == ""
    assert misfit({**facts, key: value})
    assert misfit({})


def test_rows_that_are_none_are_left_out() -> None:
    """The same for connections."""
    good = {"peer": "b", "address": "1.2.3.4", "port": 1, "state": "open", "says": "", "sent": 0,
            "resent": 0, "early": 0, "latency_ms": 0.1, "mb_per_s": None, "rtt_ms": 1}  # fmt: skip
    assert rows_of({"rows": [good, 1, {}, {**good, "port": "x"}, {**good, "rtt_ms": "x"}]}) == [
        good
    ]
    assert rows_of({"rows": None}) == []


class Store(dict[str, bytes]):
    """What ranks have told each other."""

    def check(self, keys: list[str]) -> bool:
        """Whether all of them are there."""
        return all(key in self for key in keys)


DEEP = b"[" * 200_000
GOOD = {"host": "a", "local": 0, "address": "192.0.2.1", "ports": [5, 6, 7]}
BAD = {"host": ["a"], "local": "x", "address": None, "ports": 5}


@pytest.mark.parametrize("said", [DEEP, b"5", b"", json.dumps(BAD).encode()])
def test_a_rank_whose_greeting_is_none_did_not_come(said: bytes) -> None:
    """The others are examined."""
    hello = f"{PREFIX}/hello"
    store = Store({f"{hello}/0": json.dumps(GOOD).encode(), f"{hello}/1": said})
    joined = _first(store, Seat(0, 2, 0, "192.0.2.1", 1, serves=True), 5.0)
    assert [(node.rank, node.ports) for node in joined.nodes] == [(0, (5, 6))]
    assert joined.absent == [1]


@pytest.mark.parametrize("said", [DEEP, b"5", b'{"agent": [], "per": 7}'])
def test_an_order_that_is_none_ends_with_what_to_do(said: bytes) -> None:
    """The first rank may be of another version."""
    store = Store({f"{PREFIX}/order/1": said})
    with pytest.raises(ToolError, match="cannot be read") as caught:
        _serve(store, Seat(1, 2, 1, "192.0.2.1", 1, serves=False))
    assert "same version" in caught.value.hint


def test_a_line_of_a_rank_that_is_nested_too_deeply_is_its_output() -> None:
    """The test of the node goes on."""
    trace = Trace(0)
    _hear_lines(trace, bytearray(), b"[" * 60_000 + b"\n")
    assert trace.output.startswith("[")
