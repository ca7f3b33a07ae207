"""Who took an address that others could not reach: what two lines prove together, and near misses.

NCCL 2.4 to 2.29 and torch 2.13 with Gloo print such lines; that they stand together, with addresses
of a host's containers, is put together here.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from log_fuzz import judged

from unhang.analysis.words.quiet import LEFT_OPEN
from unhang.logs.rules import rule_of

TOOK = "node02:812:812 [0] NCCL INFO Bootstrap : Using docker0:172.17.0.2<0>\n"
REFUSED = (
    "node01:811:942 [0] include/socket.h:390 NCCL WARN Connect to 172.17.0.2<38811> failed : "
    "Connection refused\n"
)


@pytest.mark.parametrize(
    ("took", "refused"),
    [
        ("Bootstrap : Using docker0:172.17.0.2<0>", "Connect to 172.17.0.2<38811> failed : "),
        (
            "Bootstrap: Using docker0:172.17.0.2<0>",
            "socketPollConnect: connect to 172.17.0.2<38811> returned ",
        ),
        (
            "Bootstrap : Using virbr0:192.168.122.1<0>",
            "socketPollConnect: Connect to 192.168.122.1<50123> returned 111(",
        ),
        (
            "NET/Socket : Using [0]eno1:10.0.0.3<0> [1]br-05ab815fa14e:172.19.0.1<0>",
            "socketPollConnect to 172.19.0.1<50123> failed with error ",
        ),
        (
            "NET/Socket : Using [0]bond0:10.0.0.3<0> [1]veth75fa783:fe80::14ad:64%veth75fa783<0>",
            "Connect to fe80::14ad:64%ens5<41023> failed : ",
        ),
    ],
)
@pytest.mark.parametrize("how", ["Connection refused", "Network is unreachable"])
def test_an_address_that_both_name(tmp_path: Path, took: str, refused: str, how: str) -> None:
    """The host that took it is named, and who could not reach it follows."""
    text = f"node02:1:1 [0] NCCL INFO {took}\nnode01:1:9 [0] misc/socket.cc:4 NCCL WARN {refused}"
    report = judged(tmp_path / "job.log", f"{text}{how}\n".encode())
    cause, *rest = report.findings
    assert report.status == "problem"
    assert (cause.code, cause.role) == ("UH731", "cause")
    assert [subject.host for subject in cause.subjects] == ["node02"]
    assert any("NCCL_SOCKET_IFNAME" in action for action in cause.actions)
    assert all(found.role != "cause" for found in rest)


def test_the_rank_that_took_it_is_the_culprit(tmp_path: Path) -> None:
    """Where launchers name ranks, and whichever line stands first."""
    text = f"[rank0]: {REFUSED}[rank1]: {TOOK}"
    cause = judged(tmp_path / "job.log", text.encode()).findings[0]
    assert (cause.code, cause.culprits) == ("UH731", (1,))
    assert any("38811" in line for line in cause.evidence)


@pytest.mark.parametrize(
    ("took", "refused", "after"),
    [
        (TOOK, REFUSED.replace("172.17.0.2", "172.17.0.9"), ""),
        (TOOK, REFUSED.replace("172.17.0.2", "172.17.0.21"), ""),
        (TOOK.replace("node02", "node01.cluster"), REFUSED, ""),
        (TOOK.replace("node02:812:812 [0] ", ""), REFUSED, ""),
        (TOOK, REFUSED.replace("node01:811:942 [0] ", ""), ""),
        (TOOK.replace("docker0", "eth0"), REFUSED, ""),
        (TOOK, REFUSED, "".join(f"step {step} loss 1.5\n" for step in range(9))),
    ],
    ids=["other", "longer", "same host", "no host", "no refuser", "no such interface", "went on"],
)
def test_what_does_not_prove_it(tmp_path: Path, took: str, refused: str, after: str) -> None:
    """Another address, one host alone, a host that is not told: nobody is blamed."""
    report = judged(tmp_path / "job.log", f"{took}{refused}{after}".encode())
    assert report.status == "insufficient"
    assert (report.summary == LEFT_OPEN) == bool(after)
    assert not any(found.role == "cause" for found in report.findings)


def test_a_process_that_failed_before_is_not_unreachable(tmp_path: Path) -> None:
    """Nobody answers at the address of a process that has ended, whichever it took."""
    died = "node02:812:812 [0] NCCL WARN Cuda failure 'an illegal memory access was encountered'\n"
    report = judged(tmp_path / "job.log", f"{TOOK}{died}{REFUSED}".encode())
    assert report.status == "problem"
    assert report.findings[0].code != "UH731"


def test_each_host_is_kept_where_no_rank_is_told(tmp_path: Path) -> None:
    """The second host's address is not lost among lines that differ in numbers alone."""
    first = TOOK.replace("node02", "node03").replace("172.17.0.2", "172.17.0.3")
    cause = judged(tmp_path / "job.log", f"{first}{TOOK}{REFUSED}".encode()).findings[0]
    assert cause.code == "UH731"
    assert [subject.host for subject in cause.subjects] == ["node02"]


def test_gloo_on_a_loopback_that_another_host_met(tmp_path: Path) -> None:
    """Who says that it took the loopback address is the rank to which nobody gets."""
    took, refused = rule_of("UH7303"), rule_of("UH7300")
    assert took
    assert refused
    text = f"[node02:1] {took.fires}\n[node01:0] {refused.fires}\n"
    report = judged(tmp_path / "job.log", text.encode())
    assert (report.findings[0].code, report.findings[0].culprits) == ("UH7303", (1,))
    alone = judged(tmp_path / "one.log", text.replace("node02", "node01").encode())
    assert (alone.findings[0].code, alone.findings[0].culprits) == ("UH7300", ())


def test_many_of_both_are_joined_once(tmp_path: Path) -> None:
    """Thousands of lines that took an address and that missed it: by address, not by pair."""
    took = "".join(TOOK.replace("node02", f"a{number}") for number in range(1_000))
    missed = "".join(REFUSED.replace("node01", f"b{number}") for number in range(1_000))
    report = judged(tmp_path / "job.log", f"{took}{missed}".encode())
    assert report.findings[0].code == "UH731"
    assert {found.role for found in report.findings[1:]} == {"consequence"}
