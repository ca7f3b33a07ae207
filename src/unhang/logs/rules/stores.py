"""Messages of torch's stores: who waits for whose key (UH7040 to UH7045, UH7075)."""

from __future__ import annotations

from unhang.logs.rules.base import LogRule

__all__ = ["RULES"]

_KEY = r"\[(?P<own>\d+)\] (?:is|are) setting up NCCL communicators? and retri?ei?ving ncclUniqueId from \[(?P<ranks>\d+)\].*"

RULES: tuple[LogRule, ...] = (
    LogRule(
        code="UH7040",
        slug="no-communicator-id",
        family="absent",
        role="cause",
        anchors=("ving ncclUniqueId from",),
        pattern=_KEY + r"got (?:error|exception): .*?(?:[Tt]ime-?d?[ -]?out|wait timeout)",
        meaning=(
            "The rank that makes the identity of a new communicator never gave it: it did not come "
            "to the first collective of that group."
        ),
        action="Look at the stack and the last log lines of that rank (a number within the group).",
        source="pytorch ProcessGroupNCCL; nccl#845, open_clip#669",
        fires=(
            "RuntimeError: [4] is setting up NCCL communicator and retrieving ncclUniqueId from [0] "
            "via c10d key-value store by key '0', but store->get('0') got error: Socket Timeout"
        ),
        spares=(
            "[4] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d "
            "key-value store by key '0', but store->get('0') got error: Connection reset by peer"
        ),
        trust="B",
        blames="ranks",
    ),
    LogRule(
        code="UH7041",
        slug="store-host-gone",
        family="failure",
        role="consequence",
        anchors=(
            "ving ncclUniqueId",
            *("Failed to broadcast signal ", "from TCPStore.", "Store is down while "),
            *("dump signal in tcpstore", "from the global store"),
            "Did the remote server shutdown or crash",
            "Failed to recv, got 0",
        ),
        pattern=r"^(?!.*(?:failed on SocketImpl|should dump)).*?(?:"
        + _KEY.replace("ranks", "holder")
        + r"got (?:error|exception): |Unknown exception while \[\d+\] is setting up NCCL communicator"
        r"|retrieving ncclUniqueIds? from roots via TCPStore by key '[^']*', but got error: "
        r"(?!.*(?:[Tt]ime-?d?[ -]?out|wait timeout))"
        r"|Failed to (?:broadcast signal \S+ through TCPStore|get source rank of the signal"
        r"|get timeout rank ID from|set dump signal in tcpstore|get exception dump flag from)"
        r"|Store is down while (?:updating|getting)|Failed to recv, got 0 bytes|Did the remote server shutdown or crash)",
        meaning="The process that hosts the store (rank 0 or the launcher) went away first.",
        action="Look at why rank 0 or its node ended before.",
        source="pytorch TCPStore; pytorch#131781, LlamaFactory#2470",
        fires=(
            "torch.distributed.DistBackendError: [15] is setting up NCCL communicator and retrieving "
            "ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got "
            "error: Connection reset by peer"
        ),
        spares="Failed to recv the answer",
        trust="B",
    ),
    LogRule(
        code="UH7042",
        slug="store-key-not-set",
        family="evidence",
        role="observation",
        anchors=(
            *("wait timeout after", "waiting for key", "barrier timeout after "),
            "from roots via TCPStore",
            *("likely a timeout", "waitForInput: socket", "timed out in monitoredBarrier"),
        ),
        pattern=r"retrieving ncclUniqueIds? from roots via TCPStore by key '[^']*', but got error: "
        r".*?(?:[Tt]ime-?d?[ -]?out|wait timeout)|barrier timeout after \d+ms, key: \S+|waitForInput: (?:socket .* timed out|poll .* "
        r"likely a timeout)|Rank (?P<rank>\d+) timed out in monitoredBarrier|wait timeout after (?P<timeout>\d+)ms, keys: (?P<keys>\S+)|[Tt]ime-?out (?:while )?waiting for key",
        meaning="This rank waited for a key of the store that another rank never set.",
        action="The ranks that print nothing are the ones to look at.",
        source="pytorch TCPStore.cpp",
        fires="torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//cpu//0/1",
        spares="keys: /default_pg/0",
        waits=(("", "a key of the store that another rank sets"),),
        trust="B",
    ),
    LogRule(
        code="UH7075",
        slug="too-many-came",
        family="environment",
        role="cause",
        anchors=("n store based barrier",),
        pattern=(
            r"(?:Waiting|Timed out initializing process group) in store based barrier .*"
            r"\(world_size=(?P<expected>\d{1,9}), (?:worker_count|num_workers_joined)=(?P<joined>\d{1,9})\b"
        ),
        more=("joined", "expected"),
        meaning=(
            "More processes came to the store than the job has: those of another launch are among "
            "them, so the barrier never counts to the right number."
        ),
        action=(
            "End what an earlier launch left behind, and give each launch a port (or a store file) "
            "of its own and the same world size."
        ),
        source="torch.distributed _store_based_barrier; metaseq#52, yolov5#4574, accelerate#157",
        fires=(
            "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for "
            "key: store_based_barrier_key:1 (world_size=8, worker_count=16, timeout=0:30:00)"
        ),
        spares=(
            "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for "
            "key: store_based_barrier_key:1 (world_size=8, worker_count=7, timeout=0:30:00)"
        ),
        trust="B",
        blames="nobody",
    ),
    LogRule(
        code="UH7045",
        slug="store-barrier-waits",
        family="absent",
        role="observation",
        anchors=("Waiting in store based barrier",),
        pattern=(
            r"Waiting in store based barrier to initialize process group for rank: (?P<rank>\d+), "
            r"key: \S+ \(world_size=(?P<expected>\d+), (?:worker_count|num_workers_joined)="
            r"(?P<joined>\d+)"
        ),
        meaning="This rank has come, and waits for others of the group that have not.",
        action="The ranks that print no such line are the ones to look at: not started, or elsewhere.",
        source="torch.distributed _store_based_barrier; pytorch-lightning#4420",
        fires=(
            "INFO:root:Waiting in store based barrier to initialize process group for rank: 0, key: "
            "store_based_barrier_key:1 (world_size=8, worker_count=7, timeout=0:30:00)"
        ),
        spares="INFO Rank 0: Completed store-based barrier for key:store_based_barrier_key:1 with 8 nodes.",
        trust="C",
        rank_writes=True,
    ),
    LogRule(
        code="UH7044",
        slug="socket-tries-again",
        family="transport",
        role="observation",
        anchors=(
            *("client socket has failed to connect to", "IPv6 network addresses of"),
            *("TCP client failed to connect/validate", "server socket on "),
        ),
        pattern=(
            r"TCP client failed to connect/validate to host \S+ - retrying|client socket has failed to connect to \S+ \(errno: (?P<errno>\d+)"
            r"|server socket on \S+ has timed out, will retry|IPv6 network addresses of \([^)]*\) cannot be retrieved"
        ),
        meaning="One address did not work, and torch tries the next one, or again.",
        action="Only where the job stays here: check MASTER_ADDR and its name on this node.",
        source="pytorch c10d socket.cpp",
        fires=(
            "[W socket.cpp:601] [c10d] The client socket has failed to connect to [localhost]:29500 "
            "(errno: 99 - Cannot assign requested address)."
        ),
        spares="[c10d] The client socket has connected to [localhost]:29500",
        trust="C",
    ),
    LogRule(
        code="UH7043",
        slug="address-families-differ",
        family="transport",
        role="cause",
        anchors=("ss1.ss_family == ss2.ss_family",),
        pattern=r"ss1\.ss_family == ss2\.ss_family\. (?P<one>\d+) vs (?P<other>\d+)",
        meaning="Gloo: one side took an IPv4 address and the other an IPv6 one.",
        action="Set GLOO_SOCKET_IFNAME on all nodes; let every host name resolve to one family.",
        source="gloo transport/tcp; pytorch#135355",
        fires=(
            "RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:83] ss1.ss_family == "
            "ss2.ss_family. 2 vs 10"
        ),
        spares="ss1.ss_family is 2",
        blames="nobody",
    ),
)
