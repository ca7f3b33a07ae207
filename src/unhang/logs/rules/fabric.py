"""Messages of InfiniBand, RoCE, EFA and of NCCL itself (UH755 to UH775)."""

from __future__ import annotations

from typing import Final

from unhang.kinds import Remedy
from unhang.logs.rules.base import LogRule

__all__ = ["RAS_DEAD", "RAS_MISMATCH", "RULES"]

RAS_MISMATCH: Final = LogRule(
    code="UH767",
    slug="ras-mismatch",
    family="absent",
    role="observation",
    anchors=("MISMATCH", "has launched up to operation"),
    pattern=r"Rank (?P<rank>\d+) has launched up to operation (?P<operation>\d+)",
    meaning="NCCL RAS: a rank whose count is lower than its peers' is behind them.",
    action="Ask three times; a difference of one that changes is normal.",
    source="NVIDIA NCCL RAS guide; nccl#1911",
    fires="  Rank 6 has launched up to operation 1842",
    spares="  operations launched on 8 ranks",
)

RAS_DEAD: Final = LogRule(
    code="UH768",
    slug="ras-dead",
    family="absent",
    role="cause",
    anchors=(
        *("is considered DEAD", "are considered DEAD", "considered dead"),
        "Client mesh is unhealthy",
    ),
    pattern=(
        r"(?:process|peer|rank)s? .*?(?:is|are)? ?considered (?:DEAD|dead)"
        r"|Client mesh is unhealthy"
    ),
    meaning="Who watches over the processes (NCCL's RAS, XLA's mesh) does not reach one any more.",
    action="Look first at the host and the process that it names, else at who printed last.",
    source="NVIDIA NCCL RAS guide; torch_xla, xla#1690",
    blames="nobody",
    fires="  1 process on node 10.0.0.7 (PID 4711) is considered DEAD",
    spares="  all processes are alive",
)

RULES: tuple[LogRule, ...] = (
    LogRule(
        code="UH755",
        slug="ib-retry-exceeded",
        family="transport",
        role="cause",
        anchors=(
            "Got completion from peer",
            "Got completion with",
            "Transport retry count exceeded",
            *("Fatal: transport error: Endpoint timeout", ": unhandled timeout error"),
        ),
        pattern=(
            r"Transport retry count exceeded(?: on (?P<device>\S+))?|"
            r"Fatal: (?:transport error: Endpoint timeout|UD endpoint \S+.*: unhandled timeout error)|"
            r"Got completion (?:from peer (?P<peer>\S+) )?with (?:error|status)[ =](?:error )?12\b"
            r"|Got completion from peer (?P<peer2>\S+) with status=(?:IBV_WC_RETRY_EXC_ERR\()?12"
        ),
        meaning=(
            "The network card sent again and again and got no answer: at the start the cards "
            "cannot talk, in the middle of a run a link or the peer stalled."
        ),
        action=(
            "At the start check the GID index (NCCL_IB_GID_INDEX, show_gids); in the middle the "
            "link counters of both ends."
        ),
        source="nccl#426; nccl#1698, nccl#1814; ucx#5199, ucx#6253, ucx#6522",
        fires=(
            "NCCL WARN NET/IB : Got completion from peer 10.0.0.7<41023> with error 12, opcode 0, "
            "len 0, vendor err 129"
        ),
        spares="NCCL WARN NET/IB : Got completion from peer 10.0.0.7<41023> with error 5, opcode 0",
        blames="nobody",
    ),
    LogRule(
        code="UH756",
        slug="ib-queue-flushed",
        family="transport",
        role="consequence",
        anchors=("NET/IB : Got completion from peer", "NET/IB: Got completion from peer"),
        pattern=r"Got completion from peer (?P<peer>\S+) with (?:error |status=\D*)5\b",
        meaning="The queue was flushed after an earlier completion error.",
        action="Use the earliest completion error.",
        source="nccl#1814, nccl#1405",
        fires=(
            "NCCL WARN NET/IB : Got completion from peer 10.0.0.7<41023> with error 5, opcode 0, "
            "len 0, vendor err 244"
        ),
        spares="NCCL WARN NET/IB : Got completion from peer 10.0.0.7<41023> with error 12, opcode",
    ),
    LogRule(
        code="UH757",
        slug="gpudirect-blocked",
        family="transport",
        role="cause",
        anchors=("vendor err 81",),
        pattern=r"Got completion .*?(?:error |status=\D*)4\b.*vendor err 81",
        meaning="GPUDirect RDMA is blocked, mostly by ACS on a PCIe switch.",
        action="Switch ACS off (BIOS or setpci); unhang doctor gpu shows where it is on.",
        source="nccl#304, nccl#214, nccl#523",
        fires="NCCL WARN NET/IB : Got completion with error 4, opcode 1, len 32, vendor err 81",
        spares="NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 32, vendor err 129",
    ),
    LogRule(
        code="UH758",
        slug="ib-qp-timeout",
        family="transport",
        role="cause",
        anchors=("ibv_modify_qp failed with",),
        pattern=r"Call to ibv_modify_qp failed with (?:error )?(?:110 )?Connection timed out",
        meaning="Two cards cannot reach each other: link-local GID, no route, or crossed rails.",
        action="Set the GID index; NCCL_CROSS_NIC=0 where rails are not connected.",
        source="nccl#769, nccl#2013",
        fires="NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out",
        spares="NCCL WARN Call to ibv_modify_qp failed with error Network is unreachable",
        blames="nobody",
    ),
    LogRule(
        code="UH759",
        slug="ib-no-route",
        family="transport",
        role="observation",
        anchors=("ibv_modify_qp failed with",),
        pattern=r"Call to ibv_modify_qp failed with (?:error )?(?:101 )?Network is unreachable",
        meaning="There is no route for the chosen GID.",
        action="Check the GID index and the addresses of the RDMA interfaces.",
        source="nccl-tests#185",
        fires="NCCL WARN Call to ibv_modify_qp failed with error Network is unreachable",
        spares="NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out",
        trust="C",
    ),
    LogRule(
        code="UH760",
        slug="locked-memory-limit",
        family="environment",
        role="cause",
        anchors=("Call to ibv_reg_mr", "Call to ibv_create_cq", "Call to ibv_create_qp"),
        pattern=(
            r"Call to ibv_(?P<call>reg_mr\w*|create_cq|create_qp) failed(?: with error (?P<error>"
            r"Cannot allocate memory))?"
        ),
        meaning="The limit of locked memory, or of the card's queue pairs, was reached.",
        action="ulimit -l unlimited in the shell that launches; then the card's own limits.",
        source="nccl-tests#206, horovod#98",
        fires="NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
        spares="NCCL INFO Call to ibv_reg_mr_iova2 succeeded",
    ),
    LogRule(
        code="UH761",
        slug="ib-sizes-differ",
        family="disagreement",
        role="cause",
        anchors=("collective mismatch error",),
        pattern=r"collective mismatch error, local size (?P<local>\d+) remote size (?P<remote>\d+)",
        meaning="Two ranks entered one collective with different sizes or different settings.",
        action="Compare NCCL_* variables and sizes between the ranks.",
        source="nccl#969",
        fires=(
            "NCCL WARN NET/IB : req 0/1 tag 3 peer 10.0.0.7 collective mismatch error, local size "
            "4096 remote size 8192"
        ),
        spares="NCCL INFO collective sizes match, local size 4096",
        blames="nobody",
    ),
    LogRule(
        code="UH762",
        slug="message-truncated",
        family="disagreement",
        role="cause",
        anchors=(
            *("Message truncated : received", "op.preamble.length <= op.nbytes"),
            *("message truncated : receiving", "Received data size doesn't match expected size"),
        ),
        pattern=(
            r"Received data size doesn't match expected size\. Is there a|"
            r"message truncated : receiving \d+ bytes instead of \d+|"
            r"Message truncated : received (?P<got>\d+) bytes instead of (?P<wanted>\d+)"
            r"|gloo/transport/tcp/pair\.cc:\d+\] op\.preamble\.length <= op\.nbytes\. "
            r"(?P<sent>\d{1,18}) vs (?P<room>\d{1,18})"
        ),
        meaning="Ranks disagree about a collective's size, or run different library versions.",
        action="Use one version and one environment on all ranks; then compare the sizes.",
        source="nccl#605, nccl#1328, prime-diloco#68",
        fires="NCCL WARN Message truncated : received 1024 bytes instead of 256",
        spares="NCCL INFO message received 1024 bytes",
        trust="B",
        blames="nobody",
    ),
    LogRule(
        code="UH763",
        slug="nccl-mismatched-collective",
        family="disagreement",
        role="cause",
        anchors=("Mismatched collective detected",),
        pattern=r"Mismatched collective detected, please check your collective calls at and around "
        r"rank (?P<rank>\d+)",
        meaning="NCCL saw different calls or sizes around that rank (the rank or its neighbour).",
        action="Compare the order and sizes of calls; NCCL_DEBUG_SUBSYS=COLL prints opCount.",
        source="nccl#296",
        fires=(
            "NCCL WARN Mismatched collective detected, please check your collective calls at and "
            "around rank 3. You can use NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=COLL"
        ),
        spares="NCCL INFO collective calls checked around rank 3",
        trust="B",
        blames="nobody",
    ),
    LogRule(
        code="UH764",
        slug="ofi-no-provider",
        family="transport",
        role="cause",
        anchors=("Could not find any optimal provider", "No eligible providers were found"),
        pattern=r"NET/OFI .*(?:Could not find any optimal provider|No eligible providers were found)",
        meaning="The EFA/OFI plugin found no usable provider; NCCL falls back to slow sockets.",
        action="Mend libfabric or the plugin; unhang doctor comm shows the bandwidth.",
        source="nccl#229",
        fires="NCCL WARN NET/OFI Could not find any optimal provider supporting GPUDirect RDMA",
        spares="NCCL INFO NET/OFI Selected Provider is efa",
        trust="B",
    ),
    LogRule(
        code="UH765",
        slug="network-is-sockets",
        family="transport",
        role="hint",
        anchors=("Using network Socket",),
        pattern=r"Using network Socket",
        meaning="NCCL uses plain sockets: slow, where InfiniBand or EFA is there.",
        action="If the node has a fast fabric, find out why its plugin did not load.",
        source="NCCL_DEBUG=INFO",
        fires="node01:11:42 [0] NCCL INFO Using network Socket",
        spares="node01:11:42 [0] NCCL INFO Using network IB",
        harmless=True,
    ),
    LogRule(
        code="UH766",
        slug="ofi-request-failed",
        family="transport",
        role="observation",
        anchors=("NET/OFI Request",),
        pattern=r"NET/OFI Request .*completed with error\. RC: (?P<rc>-?\d+)\. Error: (?P<error>.*)",
        meaning="A request of the OFI plugin failed.",
        action="Compare plugin, libfabric and NCCL versions; try NCCL_NET=Socket to tell apart.",
        source="NERSC and aws-ofi-nccl threads",
        fires="NCCL WARN NET/OFI Request 0x7f completed with error. RC: 5. Error: 16 (NO_SPACE)",
        spares="NCCL INFO NET/OFI Request 0x7f completed",
        trust="C",
    ),
    RAS_MISMATCH,
    RAS_DEAD,
    LogRule(
        code="UH769",
        slug="xid",
        family="device",
        role="cause",
        anchors=("NVRM: Xid",),
        pattern=(
            r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)\): (?P<xid>\d+)"
            r"(?=(?:.*\b(?P<mild>Nonfatal)\b)?)(?:, pid='?(?P<pid>\d+))?"
            r"(?:.*caused by previous Xid (?P<before>\d+))?"
        ),
        meaning="The driver reported a fault of that GPU.",
        action="Drain the node where it is hardware; look the number up in NVIDIA's Xid table.",
        source="NVIDIA Xid errors guide",
        fires="[84000.1] NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus.",
        spares="NVRM: loading NVIDIA UNIX x86_64 Kernel Module",
        remedy=Remedy.REPLACE,
    ),
    LogRule(
        code="UH770",
        slug="gpu-memory-error",
        family="device",
        role="cause",
        anchors=("uncorrectable ECC error", "uncorrectable NVLink error"),
        pattern=r"uncorrectable (?P<what>ECC|NVLink) error",
        meaning="The GPU's memory or links have a hardware error.",
        action="Drain the node and run its diagnostics.",
        source="CUDA runtime",
        fires="RuntimeError: CUDA error: uncorrectable ECC error encountered",
        spares="ECC errors corrected: 3",
        remedy=Remedy.REPLACE,
        echoed=True,
    ),
    LogRule(
        code="UH771",
        slug="gpu-lost",
        family="device",
        role="cause",
        anchors=(
            *("GPU is lost", "fallen off the bus", "device(s) is/are busy or unavailable"),
            "Unable to determine the device handle for GPU",
            *("RmInitAdapter failed", "[NV_ERR_RESET_REQUIRED]"),
        ),
        pattern=(
            r"GPU is lost|fallen off the bus|device\(s\) is/are busy or unavailable"
            r"|Unable to determine the device handle for GPU ?(?P<pci>[0-9a-fA-F:.]{7,16}): (?!No perm)"
            r"|NVRM: (?:GPU (?P<pci2>[0-9a-fA-F:.]{7,16}): )?RmInitAdapter failed"
            r"|NVRM: .*\[NV_ERR_RESET_REQUIRED\]"
        ),
        meaning="A GPU does not answer any more, or belongs to somebody else.",
        action="nvidia-smi on that host; reset or drain it.",
        source="nvidia-smi, CUDA runtime, NVRM; machine-shop-maintenance#76, sichek#51",
        fires="Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.",
        spares="the GPU count is 8",
        trust="B",
    ),
    LogRule(
        code="UH772",
        slug="nccl-internal-error",
        family="failure",
        role="observation",
        anchors=("ncclInternalError",),
        pattern=r"ncclInternalError: Internal check failed",
        meaning="NCCL stopped at a check of its own.",
        action="Read the last NCCL WARN line above it; NCCL_DEBUG=INFO for the next time.",
        source="NCCL user guide, error codes",
        fires="ncclInternalError: Internal check failed.",
        spares="ncclInternalError (3)",
        trust="C",
    ),
    LogRule(
        code="UH773",
        slug="nccl-system-error",
        family="failure",
        role="observation",
        anchors=("ncclSystemError", "ncclUnhandledCudaError"),
        pattern=(
            r"ncclSystemError: System call \(e\.g\. socket, malloc\) or external library call failed"
            r"|ncclUnhandledCudaError: Call to CUDA function failed"
        ),
        meaning="A system or CUDA call below NCCL failed; the NCCL WARN line above says which.",
        action="Read the last NCCL WARN line of this rank.",
        source="NCCL user guide, error codes",
        fires=(
            "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or "
            "device error."
        ),
        spares="ncclSystemError (2)",
        trust="C",
    ),
    LogRule(
        code="UH774",
        slug="ibverbs-not-loaded",
        family="environment",
        role="noise",
        anchors=("Failed to open libibverbs.so", "lib wrapper not initialized"),
        pattern=r"Failed to open libibverbs\.so|lib wrapper not initialized",
        meaning="Harmless on systems without InfiniBand.",
        action="Nothing.",
        source="nccl#229; ezpz#239",
        fires="NCCL INFO Failed to open libibverbs.so[.1]",
        spares="NCCL INFO NET/IB : Using [0]mlx5_0:1/IB",
        harmless=True,
    ),
    LogRule(
        code="UH775",
        slug="rdma-device-missing",
        family="environment",
        role="hint",
        anchors=("NET/IB : No device found",),
        pattern=r"NET/IB : No device found",
        meaning="NCCL sees no InfiniBand card: normal on a machine without one.",
        action="Where there are cards, look at NCCL_IB_HCA, and give /dev/infiniband to containers.",
        source="NCCL_DEBUG=INFO",
        fires="node01:11:42 [0] NCCL INFO NET/IB : No device found.",
        spares="node01:11:42 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE",
        trust="B",
        harmless=True,
    ),
)
