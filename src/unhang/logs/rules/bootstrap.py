"""Messages of starting up: sockets, interfaces, rendezvous, stores (UH727 to UH741)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from unhang.logs.rules.base import LogRule

__all__ = ["REFUSED", "RULES", "TAKES_VIRTUAL", "UNANSWERED", "virtual_addresses"]

_VIRTUAL = (
    r"\b(?:veth\w+|docker\d+|br-\w+|virbr\d+|cni\d+|lxcbr\d+|lo(?=:127\.)|[\w.-]+(?=:169\.254\.))"
)


def virtual_addresses(interfaces: str) -> Iterator[str]:
    """Of the interfaces that NCCL took, the addresses of those that are of one host alone."""
    for found in re.finditer(_VIRTUAL + r":([0-9a-fA-F.:]+)", interfaces[:4_000]):
        yield found[1]


RULES: tuple[LogRule, ...] = (
    LogRule(
        code="UH727",
        slug="no-socket-interface",
        family="transport",
        role="cause",
        anchors=(
            *("no socket interface found", "NET/Socket : no interface found"),
            *("No usable listening interface", "NET/IB : No IP interface found"),
            *("no device found matching", "Failed to initialize any NET plugin"),
            *("no device found after", "No interface found in the same subnet"),
        ),
        pattern=(
            r"Bootstrap : no socket interface found|NET/Socket : (?:no interface found|No usable "
            r"listening interface)|NET/IB : No IP interface found|no device found (?:matching|after "
            r"excluding)(?!.*, ignoring)|No interface found in the same subnet|Failed to initialize any NET plugin"
        ),
        meaning="NCCL_SOCKET_IFNAME matches no usable interface on this host.",
        action="Name the interface that routes between the nodes; unhang doctor net lists them.",
        source="marin#6940, marin#7018",
        fires="node01:123:123 [0] bootstrap.cc:70 NCCL WARN Bootstrap : no socket interface found",
        spares="node01:123:123 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>",
    ),
    LogRule(
        code="UH728",
        slug="bad-address-family",
        family="transport",
        role="cause",
        anchors=("is neither AF_INET",),
        pattern=r"ncclSocketInit: connecting to address .*is neither AF_INET\(2\) nor AF_INET6\(10\)",
        meaning="The interface of NCCL_SOCKET_IFNAME does not exist on one of the hosts.",
        action="Check the interface names on every host with unhang doctor net.",
        source="NVIDIA/nccl#1837",
        fires=(
            "NCCL WARN ncclSocketInit: connecting to address  with family 59936 is neither "
            "AF_INET(2) nor AF_INET6(10)"
        ),
        spares="NCCL INFO ncclSocketInit: connecting to address 10.0.0.1 with family 2",
        blames="nobody",
    ),
    LogRule(
        code="UH729",
        slug="no-ip-in-container",
        family="transport",
        role="cause",
        anchors=("Address family not supported by protocol",),
        pattern=r"Socket creation failed : Address family not supported by protocol",
        meaning="The container has no IP interface of the family that NCCL asked for.",
        action="Give the container the host's network (docker --net=host).",
        source="nccl-tests#14, nccl#210",
        fires="NCCL WARN Socket creation failed : Address family not supported by protocol",
        spares="Socket creation failed : Permission denied",
    ),
    LogRule(
        code="UH730",
        slug="connect-refused",
        family="transport",
        role="observation",
        anchors=("Connection refused",),
        pattern=(
            r"(?:Call to connect (?:returned|failed :)|connect\(\) to \S+ failed:?|[Cc]onnect to (?P<peer>[^\s<%]+)"
            r"[^\s<]*(?:<\d+>)? (?:failed :|returned(?: \d+\()?)|PollConnect to (?P<peer2>[^\s<%]+)"
            r"[^\s<]*(?:<\d+>)? failed with error) ?Connection refused"
        ),
        meaning="The peer advertised an address that nobody answers on, or its process has ended.",
        action="Check NCCL_SOCKET_IFNAME and look for a process that died before this line.",
        source="pytorch#38702, espnet#1940, uccl#1034",
        fires="NCCL INFO Call to connect returned Connection refused, retrying",
        spares="Connection refused by the metrics server",
        trust="C",
    ),
    LogRule(
        code="UH731",
        slug="virtual-interface-chosen",
        family="transport",
        role="hint",
        anchors=("NET/Socket : Using", "Bootstrap : Using", "Bootstrap: Using"),
        pattern=(
            r"(?:NET/Socket : Using|Bootstrap ?: Using) .*?(?P<interfaces>(?P<interface>"
            + _VIRTUAL
            + r")\b.*)"
        ),
        meaning=(
            "NCCL took an interface of this host alone (containers, loopback, link-local), which "
            "peers on other nodes cannot reach."
        ),
        action=(
            "export NCCL_SOCKET_IFNAME==NAME with the interface between the nodes (the second = "
            "means this name exactly), or NCCL_SOCKET_IFNAME=^docker,lo,veth,br-,virbr,cni. It is "
            "that of the route to rank 0, which unhang doctor net --hosts A,B names (or: ip route get "
            "$MASTER_ADDR)."
        ),
        source="Oneflow#3586, pytorch#68893",
        fires="node01:1:9 [0] NCCL INFO NET/Socket : Using [0]veth12ab:fe80::1%veth12ab<0>",
        spares="node01:1:9 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>",
        trust="B",
        harmless=True,
    ),
    LogRule(
        code="UH732",
        slug="socket-wrong-type",
        family="transport",
        role="cause",
        anchors=("socketFinalizeAccept",),
        pattern=r"socketFinalizeAccept(?: from (?P<peer>\S+))?: wrong (?:type|magic) \w+ != \w+",
        meaning="A connection came from something else than the expected peer.",
        action="Use one interface only, and one job per port range.",
        source="nccl-tests#188",
        fires="NCCL WARN socketFinalizeAccept: wrong type 4 != 3",
        spares="NCCL INFO socketFinalizeAccept: type 3",
        trust="C",
    ),
    LogRule(
        code="UH733",
        slug="store-connect-timeout",
        family="transport",
        role="cause",
        anchors=(
            "The client socket has timed out after",
            "Getting socket times out",
            "connect() timed out",
            *("TCP client failed to connect/validate", "to any network address of ("),
        ),
        pattern=(
            r"EI0006\b.*Getting socket times out|connect\(\) timed out\. Original timeout was|"
            r"TCP client failed to connect/validate to host (?P<host>\S+) - timed out|client socket has "
            r"failed to connect to any network address of \((?P<address3>[^)]+)\)|"
            r"The client socket has timed out after (?P<timeout>\d+)\s?m?s while trying to connect "
            r"to (?:\((?P<address>[^)]+)\)|(?P<address2>[\w.\[][\w.:\[\]-]*))"
        ),
        meaning=(
            "The address to connect to, mostly the master's, did not answer in time: not started, "
            "wrong, or filtered."
        ),
        action="Run unhang doctor net on the nodes; compare MASTER_ADDR and MASTER_PORT.",
        source="pytorch#105782; HCCL EI0006, vllm-ascend#486",
        blames="nobody",
        fires=(
            "[W socket.cpp:697] [c10d] The client socket has timed out after 900s while trying to "
            "connect to (10.0.0.1, 29500)."
        ),
        spares="[c10d] The client socket has connected to (10.0.0.1, 29500)",
        trust="B",
    ),
    LogRule(
        code="UH734",
        slug="workers-missing",
        family="absent",
        role="cause",
        anchors=(
            *("workers joined", "clients joined", "in store based barrier on rank"),
            " members to join",
        ),
        pattern=r"timed out waiting for all (?P<expected3>\d+) members to join|waiting for (?:workers|clients)\.\s*(?P<joined>\d+)/(?P<expected>\d+) (?:workers|"
        r"clients) joined|Timed out initializing process group in store based barrier on rank:? \d+, "
        r"for key: \S+ \(world_size=(?P<expected2>\d+), (?:worker_count|num_workers_joined)="
        r"(?P<joined2>\d+)",
        meaning="Fewer processes came to the rendezvous than the job expects.",
        action="Find the processes that were not started, or that ended before.",
        source="pytorch#111805",
        fires=(
            "torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for workers. "
            "1/2 workers joined."
        ),
        spares="All workers joined the rendezvous",
        blames="nobody",
    ),
    LogRule(
        code="UH735",
        slug="address-in-use",
        family="transport",
        role="cause",
        anchors=(
            *("EADDRINUSE", "Address already in use", "address already in use"),
            "errno: 13 - Permission denied",
        ),
        pattern=(
            r"EADDRINUSE|failed to (?:bind|listen).*?errno: 13 - Permission denied|(?:server socket has failed to (?:bind|listen)|failed to bind|Errno 98)"
            r".*?[Aa]ddress already in use"
        ),
        meaning=(
            "The master port cannot be had: taken, mostly by what an earlier job left behind, or below "
            "1024 and not allowed to this user."
        ),
        action="End the old process (ss -ltnp shows it) or choose another port, above 1024.",
        source="pytorch c10d socket.cpp",
        fires=(
            "[W socket.cpp:436] [c10d] The server socket has failed to bind to [::]:29500 (errno: "
            "98 - Address already in use)."
        ),
        spares="reusing the address: already in use by this process",
    ),
    LogRule(
        code="UH736",
        slug="too-many-open-files",
        family="environment",
        role="cause",
        anchors=("Too many open files",),
        pattern=r"Too many open files",
        meaning="The limit of open files is too low for this many communicators and channels.",
        action="Raise it in the shell that launches: ulimit -n 65536.",
        source="nccl#127, nccl#550",
        fires="NCCL WARN Call to socket failed : Too many open files",
        spares="too many open windows",
    ),
    LogRule(
        code="UH737",
        slug="name-not-resolved",
        family="transport",
        role="cause",
        anchors=("Name or service not known", "Temporary failure in name resolution"),
        pattern=r"^(?!.*IPv6 network addresses).*?(?:gai error|getaddrinfo|resolve|retrieved|gaierror|address info|host not found)"
        r".*?(?:Name or service not known|Temporary failure in name resolution)",
        meaning="A host name of the job cannot be resolved on this node.",
        action="Check MASTER_ADDR and /etc/hosts or DNS on this node.",
        source="pytorch c10d socket.cpp",
        fires=(
            "[W socket.cpp:663] [c10d] The IPv4 network addresses of (node01, 29500) cannot be "
            "retrieved (gai error: -2 - Name or service not known)."
        ),
        spares="ping: node01: Name or service not known",
        trust="B",
    ),
    LogRule(
        code="UH738",
        slug="communicator-init-started",
        family="evidence",
        role="observation",
        anchors=("Init START",),
        pattern=(
            r"ncclCommInitRank\w* comm \S+ rank (?P<rank>\d{1,6}) nranks (?P<nranks>\d{1,6})\b"
            r"(?:.* busId (?P<device>\w+))?.*commId (?P<comm>\S+) - Init START"
        ),
        meaning="This rank entered communicator creation.",
        action="Ranks with a start and no completion are stuck in it; ranks without are absent.",
        source="NCCL_DEBUG=INFO; nccl#2385",
        fires=(
            "node01:11:42 [0] NCCL INFO ncclCommInitRankConfig comm 0x55d0 rank 0 nranks 8 cudaDev "
            "0 nvmlDev 0 busId 1000 commId 0x9f3c - Init START"
        ),
        spares="NCCL INFO Init timings - ncclCommInitRankConfig: rank 0 nranks 8 total 0.61",
        harmless=True,
    ),
    LogRule(
        code="UH739",
        slug="communicator-init-complete",
        family="evidence",
        role="observation",
        anchors=("Init COMPLETE",),
        pattern=(
            r"ncclCommInitRank\w* comm \S+ rank (?P<rank>\d{1,6}) nranks (?P<nranks>\d{1,6})\b"
            r"(?:.* busId (?P<device>\w+))?.*commId (?P<comm>\S+) - Init COMPLETE"
        ),
        meaning="This rank came out of communicator creation.",
        action="Nothing: it tells the others apart.",
        source="NCCL_DEBUG=INFO",
        fires=(
            "node01:11:42 [0] NCCL INFO ncclCommInitRankConfig comm 0x55d0 rank 0 nranks 8 cudaDev "
            "0 nvmlDev 0 busId 1000 commId 0x9f3c - Init COMPLETE"
        ),
        spares="NCCL INFO ncclCommInitRankConfig comm 0x55d0 rank 0 nranks 8 - Init START",
        harmless=True,
    ),
    LogRule(
        code="UH740",
        slug="rendezvous-closed",
        family="failure",
        role="consequence",
        anchors=("RendezvousConnectionError", "RendezvousClosedError"),
        pattern=r"Rendezvous(?:Connection|Closed)Error",
        meaning="The elastic rendezvous is gone, mostly because the node that hosts it ended.",
        action="Look at the node of the rendezvous endpoint first.",
        source="torchelastic rendezvous",
        fires=(
            "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to "
            "the C10d store has failed."
        ),
        spares="rendezvous complete for node_rank 1",
        trust="B",
        harmless=True,
    ),
    LogRule(
        code="UH741",
        slug="socket-connection-timeout",
        family="transport",
        role="observation",
        anchors=(
            *("Connection timed out", "No route to host", "Cannot assign requested address"),
            *("Network is unreachable", "Software caused connection abort", "no POLLOUT events"),
            *("exceeded retries (", "exceeded timeouts ("),
            *("exceeded error retry count", "Operation timed out", "Gloo connectFullMesh failed"),
            *("Timeout waiting for RX", "Timeout waiting for incoming connection"),
        ),
        pattern=(
            r"NCCL WARN socketPollConnect poll\(\) returned|Gloo connectFullMesh failed"
            r"|exceeded (?:retries|timeouts) \("
            r"|CCOM WARN Timeout waiting for (?:RX|incoming connection)|exceeded error retry count"
            r"|(?:NCCL WARN(?!.*ibv_)|socket|connect)(?:.*?[Cc]onnect to (?P<peer>[^\s<%]+))?.*?"
            r"(?P<what>Connection timed out|No route to host|Network is unreachable"
            r"|Software caused connection abort|Operation timed out)"
            r"|NCCL WARN.*(?P<told>Cannot assign requested address)"
        ),
        meaning="Packets to that peer got no answer: filtered, wrong interface, or host down.",
        action="Run unhang doctor net between the two hosts.",
        source="pytorch#68893, Oneflow#3586, nccl-tests#166, wenet#1891",
        fires="NCCL WARN socketStartConnect: Connect to 10.0.0.7<41023> failed : No route to host",
        spares="INFO Connection timed out waiting for a licence",
        trust="B",
    ),
    LogRule(
        code="UH7001",
        slug="rank-came-twice",
        family="environment",
        role="cause",
        anchors=("ranks has already checked in",),
        pattern=r"Bootstrap Root : rank (?P<twice>\d+) of (?P<size>\d+) ranks has already checked in",
        meaning="Two processes came to NCCL's bootstrap with one rank: two launches, or a wrong RANK.",
        action="End what is left of an earlier launch; compare RANK and MASTER_PORT on all nodes.",
        source="pytorch-lightning#14986",
        fires="bootstrap.cc:131 NCCL WARN Bootstrap Root : rank 1 of 8 ranks has already checked in",
        spares="bootstrap.cc:112 NCCL INFO Bootstrap Root : 8 ranks have checked in",
        blames="nobody",
    ),
)

_BY_CODE = {rule.code: rule for rule in RULES}
REFUSED, TAKES_VIRTUAL, UNANSWERED = (_BY_CODE[code] for code in ("UH730", "UH731", "UH741"))
