"""Messages of Gloo about the addresses that its ranks took and gave each other (UH7300 to UH7304).

Whether an address is reached depends on where the peers are, which a line does not tell: what Gloo
took is a hint, and that nobody answers at a peer's loopback address is a cause.
"""

from __future__ import annotations

from unhang.logs.rules.base import LogRule

__all__ = ["LOOPBACK_REFUSED", "PEER_REFUSED", "RULES", "TAKES_LOOPBACK"]

_NAME_IT = (
    "On its host: export GLOO_SOCKET_IFNAME=NAME with the interface between the nodes, or give the "
    "host's name that interface's address in /etc/hosts (Debian writes 127.0.1.1 there). It is that "
    "of the route to rank 0, which unhang doctor net --hosts A,B names (or: ip route get $MASTER_ADDR)."
)
RULES: tuple[LogRule, ...] = (
    LogRule(
        code="UH7300",
        slug="gloo-loopback",
        family="transport",
        role="cause",
        anchors=("remote=[127.", "remote=[::1]"),
        pattern=(
            r"Gloo connectFullMesh failed with .*"
            r"remote=\[(?P<address>127(?:\.\d{1,3}){3}|::1)\]"
        ),
        meaning=(
            "A peer gave a loopback address, where nobody on this host answers: its own name means "
            "that on its host, or it has ended."
        ),
        action=_NAME_IT,
        source="gloo 2.13 between two network namespaces, each host name 127.0.1.1",
        fires=(
            "RuntimeError: Gloo connectFullMesh failed with [/pytorch/third_party/gloo/gloo/transport"
            "/tcp/pair.cc:152] timed out connecting: SO_ERROR: Connection refused, "
            "remote=[127.0.1.1]:20914$0"
        ),
        spares=(
            "RuntimeError: Gloo connectFullMesh failed with [/pytorch/third_party/gloo/gloo/transport"
            "/tcp/pair.cc:152] timed out connecting: SO_ERROR: Connection refused, "
            "remote=[10.0.0.2]:20914$0"
        ),
        blames="nobody",
    ),
    LogRule(
        code="UH7301",
        slug="gloo-refused",
        family="transport",
        role="cause",
        anchors=("Gloo connectFullMesh failed", "gloo/transport/tcp/pair.cc"),
        pattern=(
            r"Gloo connectFullMesh failed with .*remote=\[(?P<address>[0-9a-fA-F:.]+)\]"
            r"|gloo/transport/tcp/pair\.cc:\d+\] connect \[(?P<address2>[0-9a-fA-F:.]+)\]\S*: (?:Connection "
            r"refused|No route to host|Network is unreachable|Connection timed out)"
        ),
        meaning="A peer cannot be reached at the address that it gave.",
        action=(
            "See whether that peer lives; then its ports: unhang doctor net --hosts A,B. Gloo takes "
            "any free port, so all of them must be open between the nodes."
        ),
        source="gloo 2.13 between two network namespaces",
        fires=(
            "RuntimeError: Gloo connectFullMesh failed with [/pytorch/third_party/gloo/gloo/transport"
            "/tcp/pair.cc:152] timed out connecting: SO_ERROR: No route to host, "
            "remote=[10.0.0.2]:20914$0"
        ),
        spares="Gloo connectFullMesh failed with [/pytorch/gloo/pair.h:311] Connect timeout [none]",
        trust="B",
        blames="nobody",
    ),
    LogRule(
        code="UH7302",
        slug="gloo-nobody-came",
        family="transport",
        role="consequence",
        anchors=("Gloo connectFullMesh failed",),
        pattern=r"Gloo connectFullMesh failed with .*Connect timeout",
        meaning="A peer did not connect in time: why, its own log tells.",
        action="Read the logs of the other ranks: the one that could not connect names the address.",
        source="gloo 2.13 between two network namespaces",
        fires="Gloo connectFullMesh failed with [/pytorch/gloo/pair.h:311] Connect timeout [none]",
        spares="Gloo connectFullMesh took 12 s",
        blames="nobody",
    ),
    LogRule(
        code="UH7303",
        slug="gloo-takes-loopback",
        family="transport",
        role="hint",
        anchors=("Unable to resolve hostname to a (local) address",),
        pattern=r"Unable to resolve hostname to a \(local\) address\. Using the loopback address",
        meaning="Gloo took the loopback address, which no other host reaches.",
        action=_NAME_IT,
        source="torch 2.13 in a namespace whose host name nobody knows",
        fires=(
            "[W1122 18:33:20.179808375 ProcessGroupGloo.cpp:524] Warning: Unable to resolve hostname "
            "to a (local) address. Using the loopback address as fallback. Manually set the network "
            "interface to bind to with GLOO_SOCKET_IFNAME. (function operator())"
        ),
        spares="Unable to resolve hostname node7",
        harmless=True,
    ),
    LogRule(
        code="UH7304",
        slug="gloo-connects-again",
        family="transport",
        role="hint",
        anchors=("failed to connect, willRetry=",),
        pattern=(
            r"failed to connect, willRetry=[01], retry=\d+, retryLimit=\d+, rank=\d+, .*"
            r"remote=\[(?P<address>[0-9a-fA-F:.]+)\]"
        ),
        meaning="Gloo could not connect to a peer yet, and tries again.",
        action="Where it gives up, a line says so; until then a peer may only be late.",
        source="gloo 2.13 between two network namespaces",
        fires=(
            "[/pytorch/third_party/gloo/gloo/transport/tcp/debug_logger.cc:9] ERROR failed to connect, "
            "willRetry=1, retry=1, retryLimit=3, rank=0, size=2, local=[10.0.0.1]:13988, "
            "remote=[10.0.0.2]:20914$0, error=SO_ERROR: Connection refused, remote=[10.0.0.2]:20914$0"
        ),
        spares="failed to connect, giving up",
        harmless=True,
    ),
)

_BY_CODE = {rule.code: rule for rule in RULES}
LOOPBACK_REFUSED, PEER_REFUSED, TAKES_LOOPBACK = (
    _BY_CODE[code] for code in ("UH7300", "UH7301", "UH7303")
)
