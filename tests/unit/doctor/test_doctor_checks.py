"""The doctor's judgement over facts that are given, not asked for: every check both ways."""

from __future__ import annotations

from typing import Any

import pytest
from check_results import bad

from unhang.casedir.place import Place
from unhang.checks import CHECKS
from unhang.doctor.checks.env import check_env
from unhang.doctor.checks.interfaces import check_interfaces, leads_of, nccl_interface
from unhang.doctor.checks.matrix import best_of, calls_again, check_matrix
from unhang.doctor.checks.results import CheckResult, host_subject
from unhang.doctor.reporting import to_report
from unhang.reports import Look, render, with_steps


def interface(name: str, address: str, kind: str = "ethernet", mtu: int = 1500) -> dict[str, Any]:
    """An interface that is up."""
    return {"name": name, "address": address, "up": True, "mtu": mtu, "speed": 0, "kind": kind}


def facts(**changes: object) -> dict[str, Any]:
    """A node with nothing wrong."""
    return {
        "settings": {},
        "limits": {"open_files": 65536, "locked_memory": -1, "core": -1, "shm": 16 << 30},
        "versions": {"torch": "2.13.0", "machine": "x86_64"},
        "interfaces": [interface("lo", "127.0.0.1", "loopback"), interface("eth0", "10.0.0.1")],
        "own_name": {"addresses": ["10.0.0.1"], "error": ""},
        "own_address": "10.0.0.1",
        "master": {"addresses": [], "error": ""},
        "route": {"to": "", "source": ""},
        "ptrace_scope": "0",
        "time_ns": 1,
        "dmesg": [],
        **changes,
    }


def test_a_good_node_passes() -> None:
    """No check complains without reason."""
    assert bad(check_env({"a": facts()}, 1)) == []
    assert bad(check_interfaces({"a": facts(), "b": facts()})) == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"settings": {"NCCL_IB_DISABLE": "1", "NCCL_IB_HCA": "mlx5_0"}}, "UH801"),
        ({"settings": {"NCCL_SOKET_IFNAME": "eth0"}}, "UH802"),
        ({"settings": {"NCCL_BLOCKING_WAIT": "1"}}, "UH803"),
        (
            {
                "settings": {"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"},
                "versions": {"torch": "2.15.0+cu132"},
            },
            "UH803",
        ),
        ({"settings": {"TORCH_FR_BUFFER_SIZE": "0"}}, "UH804"),
        ({"limits": {"open_files": 1024, "shm": 16 << 30}}, "UH805"),
        (
            {
                "limits": {"locked_memory": 65536, "shm": 16 << 30},
                "interfaces": [interface("ib0", "10.1.0.1", "infiniband")],
            },
            "UH806",
        ),
        ({"limits": {"shm": 64 << 20}}, "UH807"),
        ({"limits": {"shm": 16 << 30, "shm_free": 5 << 20}}, "UH807"),
        ({"limits": {"core": 0, "shm": 16 << 30}}, "UH808"),
        ({"versions": {"torch": "2.5.1+cu124"}}, "UH810"),
        ({"ptrace_scope": "2"}, "UH811"),
    ],
)
def test_env_checks(changes: dict[str, Any], code: str) -> None:
    """Each fault gives its own code and no other."""
    assert bad(check_env({"a": facts(**changes)})) == [(code, "warn")]


@pytest.mark.parametrize(
    ("pattern", "words"),
    [("|/lib/systemd-coredump %P", "coredumpctl"), ("/var/cores/core.%p", "/var/cores")],
)
def test_how_to_get_cores(pattern: str, words: str) -> None:
    """Where the kernel puts them, and what reads them."""
    node = facts(limits={"core": 0, "shm": 16 << 30}, core_pattern=pattern)
    (result,) = [r for r in check_env({"a": node}) if r.code == "UH808"]
    assert result.level == "warn"
    assert words in result.action
    assert "unhang core" in result.action


def test_an_unknown_name_of_somebody_else_is_not_misspelt() -> None:
    """Only names close to a known one are called misspelt."""
    settings = {"NCCL_MY_SITE_WRAPPER_VERSION": "3", "TORCH_HOME": "/models"}
    assert bad(check_env({"a": facts(settings=settings)})) == []


def test_nodes_that_differ() -> None:
    """Versions, settings and clocks of several nodes are compared; the odd one is named."""
    nodes = {name: facts() for name in "abc"}
    nodes["c"] = facts(
        versions={"torch": "2.12.0"}, settings={"NCCL_NET": "Socket"}, time_ns=60 * 10**9
    )
    results = check_env(nodes, 1)
    assert sorted(bad(results)) == [
        ("UH809", "warn"), ("UH809", "warn"), ("UH812", "warn"), ("UH813", "warn"),
    ]  # fmt: skip
    odd = [r for r in results if r.code in ("UH809", "UH813") and r.level == "warn"]
    assert {s.host for r in odd for s in r.subjects} == {"c"}


@pytest.mark.parametrize(
    ("interfaces", "setting", "expected"),
    [
        (["eth0", "ib0"], "", "ib0"),
        (["docker0", "eth0"], "", "eth0"),
        (["docker0"], "", "docker0"),
        (["eth0", "eth1"], "eth1", "eth1"),
        (["eth0", "eth10"], "=eth10", "eth10"),
        (["docker0", "veth1", "bond0"], "^docker,veth", "bond0"),
        (["eth0"], "=eth", None),
    ],
)
def test_the_interface_that_nccl_takes(
    interfaces: list[str], setting: str, expected: str | None
) -> None:
    """NCCL's own rules: prefixes, exact names, exclusions, and its default order."""
    settings = {"NCCL_SOCKET_IFNAME": setting} if setting else {}
    listed = [interface(name, f"10.0.0.{i}") for i, name in enumerate(interfaces, 1)]
    chosen, _ = nccl_interface(facts(interfaces=listed, settings=settings))
    assert (chosen["name"] if chosen else None) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"interfaces": [interface("docker0", "172.17.0.1", "bridge")]}, ("UH820", "fail")),
        ({"interfaces": [interface("eth0", "169.254.3.4")]}, ("UH820", "fail")),
        ({"settings": {"NCCL_SOCKET_IFNAME": "eth7"}}, ("UH821", "fail")),
        ({"own_name": {"addresses": ["127.0.1.1"], "error": ""}}, ("UH820", "fail")),
        (
            {"own_name": {"addresses": ["10.9.9.9"], "error": ""}, "own_address": ""},
            ("UH820", "fail"),
        ),
        ({"settings": {"GLOO_SOCKET_IFNAME": "eth7"}}, ("UH821", "fail")),
        ({"master": {"addresses": [], "error": "unknown"}}, ("UH822", "fail")),
    ],
)
def test_interface_checks(changes: dict[str, Any], expected: tuple[str, str]) -> None:
    """What peers cannot reach, or cannot resolve, is named."""
    assert bad(check_interfaces({"a": facts(), "b": facts(**changes)})) == [expected]


def test_which_of_several_interfaces_they_should_take() -> None:
    """That by which the kernel sends to rank 0, or to the peers where MASTER_ADDR is not set."""
    several = [
        interface("lo", "127.0.0.1", "loopback"), interface("docker0", "172.17.0.1", "bridge"),
        interface("eth0", "192.168.1.2"), interface("eth1", "10.0.0.2"),
    ]  # fmt: skip
    odd = facts(
        interfaces=several,
        settings={"NCCL_SOCKET_IFNAME": "docker0"},
        own_name={"addresses": ["127.0.1.1"], "error": ""},
        route={"to": "10.0.0.1", "source": "10.0.0.2"},
    )
    nodes = {"a": facts(), "b": odd}
    to_peers = {"a": [row("b", source="10.0.0.1")], "b": [row("a", source="192.168.1.2")]}
    leads = leads_of(nodes, to_peers)
    assert leads == {
        "a": ("eth0", "10.0.0.1", "its peers"),
        "b": ("eth1", "10.0.0.2", "MASTER_ADDR (10.0.0.1)"),
    }
    results = check_interfaces(nodes, leads)
    assert [r.action for r in results if r.level in ("fail", "warn")] == [
        (
            "export NCCL_SOCKET_IFNAME==eth1 GLOO_SOCKET_IFNAME=eth1 (the second = means this name "
            "exactly): the route to MASTER_ADDR (10.0.0.1) leaves by it."
        ),
        (
            "export GLOO_SOCKET_IFNAME=eth1, or let /etc/hosts name 10.0.0.2: the route to "
            "MASTER_ADDR (10.0.0.1) leaves by it."
        ),
    ]
    assert [r.seen for r in results if r.level == "ok"][:2] == [
        "a: NCCL takes eth0 (10.0.0.1, ethernet) by itself; the route to its peers leaves by it.",
        "a: Gloo takes eth0 (10.0.0.1) by its own name; the route to its peers leaves by it.",
    ]


def test_a_choice_that_leads_elsewhere_is_said_and_not_blamed() -> None:
    """InfiniBand beside an Ethernet for everything else is how most clusters are built."""
    node = facts(
        interfaces=[interface("eth0", "10.0.0.1"), interface("ib0", "10.1.0.1", "infiniband")],
        route={"to": "10.0.0.9", "source": "10.0.0.1"},
    )
    results = check_interfaces({"a": node}, leads_of({"a": node}, {}))
    assert bad(results) == []
    assert results[0].seen.endswith(
        "by itself; the route to MASTER_ADDR (10.0.0.9) leaves by eth0 (10.0.0.1)."
    )


def test_a_choice_that_nobody_reaches_comes_with_what_to_set() -> None:
    """The interface by which the peers are reached."""
    nodes = {name: facts(interfaces=[interface("eth1", "10.0.0.7")]) for name in "ab"}
    rows = {"a": [row("b", source="10.0.0.7")], "b": []}
    rows["a"].append(row("b", "filtered", address="10.5.5.5"))
    (found,) = check_matrix("ab", rows, {"b": "10.5.5.5"}, {"b": leads_of(nodes, rows)["a"]})
    assert found.action.startswith("export NCCL_SOCKET_IFNAME==eth1 GLOO_SOCKET_IFNAME=eth1")


def named(address: str, own: str) -> dict[str, Any]:
    """A node on which MASTER_ADDR resolves to an address."""
    interfaces = [interface("lo", "127.0.0.1", "loopback"), interface("eth0", own)]
    return facts(master={"addresses": [address], "error": ""}, interfaces=interfaces)


def test_what_master_addr_means() -> None:
    """The loopback is right on the master itself only, and all must mean the same machine."""
    good = {"a": named("127.0.1.1", "10.0.0.1"), "b": named("10.0.0.1", "10.0.0.2")}
    assert bad(check_interfaces(good)) == []
    lost = {**good, "c": named("127.0.0.1", "10.0.0.3")}
    assert bad(check_interfaces(lost)) == [("UH822", "fail")]
    alone = {"a": named("127.0.0.1", "10.0.0.1"), "b": named("127.0.0.1", "10.0.0.2")}
    assert bad(check_interfaces(alone)) == [("UH822", "fail")] * 2
    two = {**good, "c": named("10.0.0.9", "10.0.0.3")}
    assert bad(check_interfaces(two)) == [("UH822", "warn")]


def test_one_mtu_that_differs() -> None:
    """The node whose MTU is not that of the others."""
    odd = facts(interfaces=[interface("eth0", "10.0.0.3", mtu=9000)])
    results = check_interfaces({"a": facts(), "b": facts(), "c": odd})
    assert [r.subjects[0].host for r in results if r.code == "UH826"] == ["c"]


def test_the_mtu_of_a_loopback_is_not_compared() -> None:
    """It is all that a node without a link has left, and another check's matter."""
    lost = facts(interfaces=[interface("lo", "127.0.0.1", "loopback", mtu=65536)])
    assert ("UH826", "warn") not in bad(check_interfaces({"a": facts(), "b": facts(), "c": lost}))


def row(peer: str, state: str = "open", *, port: int = 29500, **more: object) -> dict[str, Any]:
    """One connection that a node tried."""
    return {"peer": peer, "address": f"ip-{peer}", "port": port, "state": state,
            "latency_ms": 0.1 if state == "open" else None,
            "mb_per_s": 900.0 if state == "open" else None,
            "rtt_ms": 0.1 if state == "open" else None, "sent": 3000, "resent": 0, "early": 0,
            "says": "", **more}  # fmt: skip


def matrix(names: str, **odd: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """All nodes call all; `odd` replaces single connections, named "ab" for a -> b."""
    return {a: [odd.get(a + b, row(b)) for b in names if b != a] for a in names}


def test_a_working_matrix_is_ok() -> None:
    """Nothing to say but one ok."""
    results = check_matrix("abcd", matrix("abcd"), {})
    assert [(r.code, r.level) for r in results] == [("UH823", "ok")]


def test_a_port_that_is_filtered_on_one_host() -> None:
    """The host that nobody reaches is named once, not once per peer."""
    odd = {f"{a}c": row("c", "filtered") for a in "abd"}
    results = check_matrix("abcd", matrix("abcd", **odd), {})
    assert bad(results) == [("UH823", "fail")]
    assert results[0].subjects[0].host == "c"


def test_ports_of_the_kernels_choice_that_a_firewall_drops() -> None:
    """The job starts and hangs: its meeting port is open, and ranks listen elsewhere."""
    rows = {
        a: [row(b, port=29500) for b in "ab" if b != a]
        + [
            row(b, "filtered" if b == "b" else "open", port=p)
            for b in "ab"
            if b != a
            for p in (41, 52)
        ]
        for a in "ab"
    }
    (result,) = check_matrix("ab", rows, {}, any_ports=(41, 52))
    assert result.level == "fail"
    assert result.seen == (
        "b cannot be reached on ports that the kernel chooses (41, 52 tried) from any other node "
        "(filtered)."
    )
    assert "every port" in result.action


def test_one_direction_of_one_pair() -> None:
    """A single blocked connection is that link's."""
    results = check_matrix("abcd", matrix("abcd", bd=row("d", "refused")), {})
    assert bad(results) == [("UH823", "fail")]
    assert results[0].subjects[0].id == "b -> d:29500"


def test_two_nodes_that_do_not_meet_blame_neither() -> None:
    """With two nodes and no connection either way there is no majority."""
    rows = matrix("ab", ab=row("b", "filtered"), ba=row("a", "filtered"))
    results = check_matrix("ab", rows, {})
    assert [s.kind for r in results for s in r.subjects] == ["link"]


def test_a_wrong_host_answers() -> None:
    """Two nodes behind one address, or a foreign program on the port."""
    rows = matrix("abc", ab=row("b", "wrong-host", says="c"), cb=row("b", "other-service"))
    assert bad(check_matrix("abc", rows, {})) == [("UH824", "fail")] * 2


@pytest.mark.parametrize(
    ("odd", "words", "level"),
    [
        (row("d", "silent"), "connect, and then data is lost", "fail"),
        (row("d", "silent", latency_ms=0.1), "large ones are lost, as with a wrong MTU", "fail"),
        (row("d", "silent", latency_ms=0.1, early=4), "then data is lost", "fail"),
        (row("d", resent=300, sent=3000), "10% of the segments", "fail"),
        (row("d", rtt_ms=40.0), "40.0 ms there and back", "fail"),
        (row("d", rtt_ms=40.0, resent=300, sent=3000), "0.10 ms; 10% of the segments", "fail"),
        (row("d", mb_per_s=2.0), "2.0 MB/s; the median pair has 900 MB/s", "warn"),
    ],
)
def test_a_bad_link_is_isolated(odd: dict[str, Any], words: str, level: str) -> None:
    """Loss, a wrong MTU, a long way, low throughput: that pair, once, and no node."""
    results = check_matrix("abcd", matrix("abcd", ad=odd), {})
    assert bad(results) == [("UH825", level)]
    assert [s.id for r in results for s in r.subjects] == ["a - d"]
    assert words in results[0].seen


def test_a_node_whose_links_are_all_bad_is_named_itself() -> None:
    """Its peers work among each other; with every link bad, none is singled out."""
    odd = {f"a{b}": row(b, "silent", latency_ms=0.1) for b in "bcd"}
    results = check_matrix("abcd", matrix("abcd", **odd), {})
    assert [s.id for r in results for s in r.subjects] == ["a"]
    assert results[0].seen.startswith("a and every other node: small messages pass")


def test_one_node_of_three_far_away() -> None:
    """Two thirds of all pairs are slow, and it is the node that they share."""
    far = {pair: row(pair[1], rtt_ms=40.0) for pair in ("ac", "ca", "bc", "cb")}
    results = check_matrix("abc", matrix("abc", **far), {})
    assert [s.id for r in results for s in r.subjects] == ["c"]


def test_a_little_loss_and_a_little_delay_are_no_fault() -> None:
    """Networks drop a few segments; what is within bounds is not named."""
    odd = row("d", resent=5, sent=40, rtt_ms=0.7, mb_per_s=200.0)
    assert bad(check_matrix("abcd", matrix("abcd", ad=odd), {})) == []


def test_what_was_tried_again_counts_by_its_best() -> None:
    """A fault shows every time, a busy machine does not."""
    tries = [row("b", "silent"), row("b", mb_per_s=3.0, rtt_ms=9.0, resent=99, sent=99),
             row("b", mb_per_s=700.0, rtt_ms=0.1), row("c", "filtered")]  # fmt: skip
    best = {r["peer"]: r for r in best_of(tries)}
    assert best["c"]["state"] == "filtered"
    values = [best["b"][k] for k in ("state", "mb_per_s", "rtt_ms", "latency_ms", "resent")]
    assert values == ["open", 700.0, 0.1, 0.1, 0]


def test_only_what_is_doubtful_is_tried_again() -> None:
    """By the node that tried it; the other end knows who will call."""
    rows = matrix("abcd", ad=row("d", "silent"), bc=row("c", "filtered", port=29501))
    assert calls_again(rows) == {
        "a": {"again": [["d", "ip-d", 29500]], "callers": []},
        "d": {"again": [], "callers": ["a"]},
        "b": {"again": [["c", "ip-c", 29501]], "callers": []},
        "c": {"again": [], "callers": ["b"]},
    }
    assert calls_again(matrix("abcd")) == {}


def test_an_advertised_address_that_nobody_reaches() -> None:
    """The node's own address works, the one that NCCL would take does not."""
    rows = matrix("abc")
    for name in "ab":
        rows[name].append({**row("c", "unreachable"), "address": "192.168.9.9"})
    results = check_matrix("abc", rows, {"c": "192.168.9.9"})
    assert bad(results) == [("UH820", "fail")]
    assert results[0].subjects[0].host == "c"


def test_the_report_of_checks() -> None:
    """Failures are causes, warnings observations, the rest notes; every code has a check."""
    report = to_report([CheckResult(CHECKS["UH823"], "fail", "x"),
                        CheckResult(CHECKS["UH808"], "warn", "y"),
                        CheckResult(CHECKS["UH826"], "ok", "z")])  # fmt: skip
    assert report.status == "problem"
    assert [(f.code, f.role) for f in report.findings] == [
        ("UH823", "cause"),
        ("UH808", "observation"),
    ]
    assert len(report.notes) == 1
    assert len({check.slug for check in CHECKS.values()}) == len(CHECKS)


def test_the_terminal_tells_the_cure() -> None:
    """Not only `-v`: what to do about a blocked port is why the check was asked."""
    cure = "Let TCP through."
    blocked = CheckResult(CHECKS["UH823"], "fail", "b is closed.", host_subject("b"), action=cure)
    report = to_report([blocked], ["net"])
    assert cure in render("text", with_steps(report, None, Place()), None, Look(full=False))


NO_GPU = CheckResult(CHECKS["UH840"], "skip", "a: no GPU to check: no library.", host_subject("a"))
NO_PEER = CheckResult(CHECKS["UH823"], "skip", "one node has no peer to connect to.")
NO_TORCH = CheckResult(CHECKS["UH865"], "skip", "torch is not there.")
LIMITS = CheckResult(
    CHECKS["UH805"], "ok", "a: open files are limited to 65536.", host_subject("a")
)
INTERFACE = CheckResult(CHECKS["UH820"], "ok", "a: NCCL takes eth0.")
GPUS = CheckResult(CHECKS["UH840"], "ok", "b: 8 GPUs answered.", host_subject("b"))
MATRIX = CheckResult(CHECKS["UH823"], "ok", "all 12 connections between 4 nodes work.")
SAME = CheckResult(CHECKS["UH823"], "skip", "b is the same machine as a: it was left out.")
STEPS = CheckResult(CHECKS["UH860"], "ok", "15 steps with 2 ranks on gloo passed.")


@pytest.mark.parametrize(
    ("parts", "results", "status"),
    [
        (["gpu"], [NO_GPU], "insufficient"),
        (["gpu"], [GPUS], "healthy"),
        (["gpu"], [GPUS, NO_GPU], "insufficient"),
        (["gpu", "comm"], [NO_GPU, STEPS], "insufficient"),
        (["comm"], [NO_TORCH], "insufficient"),
        (["comm"], [STEPS], "healthy"),
        (["net"], [INTERFACE, NO_PEER], "insufficient"),
        (["net"], [INTERFACE, SAME, MATRIX], "healthy"),
        (["env"], [LIMITS], "healthy"),
        (["env"], [], "insufficient"),
        ([], [LIMITS, INTERFACE, NO_PEER, NO_GPU, NO_TORCH], "insufficient"),
        ([], [LIMITS, INTERFACE, NO_PEER, NO_GPU, STEPS], "healthy"),
        ([], [LIMITS, INTERFACE, MATRIX, NO_GPU, NO_TORCH], "healthy"),
        ([], [LIMITS, GPUS, NO_GPU, NO_TORCH], "healthy"),
        ([], [], "insufficient"),
    ],
)
def test_healthy_is_what_was_looked_at(
    parts: list[str], results: list[CheckResult], status: str
) -> None:
    """A part that was named must have been looked at; else one of those that matter."""
    assert to_report(results, parts).status == status


def test_what_was_skipped_stands_in_the_headline() -> None:
    """Counted and named, beside what passed and what is doubtful."""
    doubtful = CheckResult(CHECKS["UH808"], "warn", "a: core files are off.", host_subject("a"))
    report = to_report([LIMITS, INTERFACE, NO_PEER, NO_GPU, STEPS])
    assert report.summary == (
        "3 checks passed, 2 skipped: one node has no peer to connect to; "
        "a: no GPU to check: no library."
    )
    assert to_report([doubtful, STEPS], ["comm"]).summary == (
        "1 check passed, 1 gave a warning: a: core files are off."
    )
    assert to_report([NO_TORCH], ["comm"]).summary == (
        "Too few checks ran for a verdict on comm: 0 checks passed, 1 skipped: torch is not there."
    )


def test_the_checklist_has_a_line_for_each_check() -> None:
    """What is wrong stands first, with its remedy; what passed and was skipped is not left out."""
    failed = CheckResult(CHECKS["UH823"], "fail", "a cannot reach b.", host_subject("a"))
    doubtful = CheckResult(CHECKS["UH808"], "warn", "a: core files are off.", host_subject("a"))
    report = to_report([STEPS, NO_GPU, doubtful, failed])
    shown = [(check.name, check.mark, bool(check.remedy)) for check in report.checks]
    assert shown[:2] == [("ports", "fail", True), ("core files", "warn", True)]
    assert sorted(shown[2:]) == [("GPUs", "skip", False), ("ranks start", "ok", False)]
    lines = render("text", report, None, Look(full=False)).splitlines()
    first = [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]
    assert [word for word in first if word in {"failed", "warning", "ok", "skipped"}] == [
        "failed", "warning", "ok", "skipped"
    ]  # fmt: skip


def test_what_is_the_same_on_several_hosts_is_said_once() -> None:
    """Hosts are folded; what differs in its words is not."""
    results = [
        CheckResult(CHECKS["UH808"], "warn", f"n{i}: core files are off.", host_subject(f"n{i}"))
        for i in range(6)
    ]
    other = CheckResult(
        CHECKS["UH805"], "warn", "n0: open files are limited to 5.", host_subject("n0")
    )
    first, second = to_report([*results, other]).findings
    assert first.summary == "n0: open files are limited to 5."
    assert second.summary == "n0, n1, n2, n3 and 2 more: core files are off."
    assert [s.host for s in second.subjects] == [f"n{i}" for i in range(6)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"gpus": 8, "iommu_groups": 40, "iommu_types": ["DMA-FQ"]}, ["UH815"]),
        ({"gpus": 8, "iommu_groups": 40, "iommu_types": ["identity"]}, []),
        ({"gpus": 0, "iommu_groups": 40, "iommu_types": ["DMA"]}, []),
        ({"room": {"cores": 1.0, "periods": 100, "throttled": 60}}, ["UH814"]),
        ({"room": {"oom_kills": 1}}, ["UH814"]),
        ({"room": {"cores": 4.0, "periods": 100, "unknown": 7}}, []),
    ],
)
def test_the_machine_below_the_job(changes: dict[str, Any], expected: list[str]) -> None:
    """An IOMMU matters where GPUs are; a limit where it was met."""
    assert [code for code, _ in bad(check_env({"a": facts(**changes)}))] == expected


def test_advice_names_the_setting() -> None:
    """Which interface to take, and which MTU to set where."""
    docker = [interface("docker0", "172.17.0.1", "bridge"), interface("eth1", "10.0.0.2")]
    node = facts(interfaces=docker, settings={"NCCL_SOCKET_IFNAME": "docker"})
    results = check_interfaces({"a": node, "b": facts()})
    (unwise,) = [r for r in results if r.code == "UH820" and r.level == "fail"]
    assert "NCCL_SOCKET_IFNAME==eth1 GLOO_SOCKET_IFNAME=eth1" in unwise.action
    large = facts(interfaces=[interface("eth0", "10.0.0.9", mtu=9000)])
    results = check_interfaces({"a": facts(), "b": facts(), "c": large})
    (differs,) = [r for r in results if r.code == "UH826"]
    assert differs.action.startswith("On c: ip link set dev eth0 mtu 1500;")


def node(**changes: object) -> dict[str, Any]:
    """What agents/machine.py gives of a node with nothing wrong."""
    return {
        "cores": 64, "usable": 64, "memory_total": 1 << 40, "memory_available": 1 << 39,
        "cpu_stalled": 0.1, "memory_stalled": 0.0, "huge_bytes": 2 << 20, "synchronised": True,
        **changes,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"node": node()}, "", ""),
        ({"node": {"cores": "many"}}, "", ""),
        ({"node": node(), "limits": {"processes": 1024}}, "UH816", "(ulimit -u)"),
        ({"node": node(tasks=4000, tasks_limit=4096)}, "UH816", "4,000 of 4,096 threads"),
        ({"node": node(tasks=400, tasks_limit=4096)}, "", ""),
        ({"node": node(huge_pages=100_000, huge_free=90_000)}, "UH817", "nr_hugepages=10000"),
        ({"node": node(huge_pages=100_000, huge_free=1_000)}, "", ""),
        ({"node": node(cpu_stalled=0.9)}, "UH818", "64 cores in 90% of the last minute"),
        ({"node": node(memory_stalled=0.3)}, "UH818", "waited for memory in 30%"),
        ({"node": node(swap_used=5 << 30, swapped_in=9e6)}, "UH818", "9 MB/s are read back"),
        ({"node": node(swap_used=5 << 30)}, "", ""),
        ({"node": node(), "gpus": 8, "settings": {"OMP_NUM_THREADS": "64"}}, "UH819",
         "export OMP_NUM_THREADS=8."),
        ({"node": node(), "gpus": 8, "settings": {"OMP_NUM_THREADS": "8"}}, "", ""),
        ({"node": node(), "gpus": 8}, "", ""),
    ],
)  # fmt: skip
def test_what_a_node_is_short_of(changes: dict[str, Any], code: str, said: str) -> None:
    """Each with its figures, and the setting where there is one."""
    found = [r for r in check_env({"a": facts(**changes)}) if r.level in ("fail", "warn")]
    assert [r.code for r in found] == ([code] if code else [])
    assert all(said in f"{r.seen} {r.action}" for r in found)


def test_clocks_that_nobody_sets() -> None:
    """They drift apart; of one node alone that does no harm."""
    nodes = {"a": facts(node=node()), "b": facts(node=node(synchronised=False))}
    assert bad(check_env({"b": nodes["b"]}, 1)) == []
    (found,) = (r for r in check_env(nodes, 1) if r.level == "warn")
    assert (found.code, [s.host for s in found.subjects]) == ("UH812", ["b"])
    assert "no daemon sets the clocks of b" in found.seen


def test_the_checklist_says_what_to_do_on_each_host_where_that_differs() -> None:
    """The remedy of the first one would be wrong on the others."""
    results = [
        CheckResult(
            CHECKS["UH808"], "warn", f"n{i}: core files are off.", host_subject(f"n{i}"),
            action=f"Do {i}.",
        )
        for i in range(2)
    ]  # fmt: skip
    report = to_report(results)
    assert [check.remedy for check in report.checks] == ["On n0: Do 0. On n1: Do 1."]
    assert report.findings[0].actions == ("On n0: Do 0.", "On n1: Do 1.")
