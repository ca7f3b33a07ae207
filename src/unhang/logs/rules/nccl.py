"""What NCCL's own sources warn of, beside sockets, memory and fabric (UH7002 to UH7019)."""

from __future__ import annotations

from unhang.logs.rules.base import LogRule

__all__ = ["RULES"]

RULES: tuple[LogRule, ...] = (
    LogRule(
        code="UH7002",
        slug="nccl-refuses-argument",
        family="program",
        role="cause",
        anchors=(
            *("Invalid rank requested", "Invalid device", "improper usage of ncclCommInitRank"),
            *(": invalid root ", ": invalid type ", ": invalid reduction operation"),
            *("argument is NULL", "is not a valid pointer", "mismatchs with NCCL device"),
            *("to self without a matching", "Invalid config ", "exceeds ndev="),
            *("argument not initialized via NCCL_", "argument must be initialized via NCCL_"),
            *("operator is ", "unknown to this communicator", "supplied to user-created"),
            *("captured by the same graph", "can be CUDA graph captured", "not in a group call"),
            *("Blocking and nonblocking communicators", "corrupted comm object", "ncclCommGrow: "),
            *("Invalid NCCL_COMM_ID", "should not be called when NCCL_COMM_ID", "Invalig config "),
            *("ncclPutSignal: ", "ncclWaitSignal: ", "FP8 reduction support begins with"),
            *("no algorithm/protocol available", "does not support symmetric memory"),
            *("User requested GIN", "Window address must be", "Window registration of addresses"),
            *("does not match the parent", "unsupported collective"),
        ),
        pattern=(
            r"NCCL WARN .*(?:Invalid rank requested|Invalid device (?:count )?(?:requested|\d)"
            r"|improper usage of ncclCommInitRank|: invalid (?:root|type|reduction operation) "
            r"|argument is NULL|is not a valid pointer|mismatchs with NCCL device"
            r"|to self without a matching (?:send|recv)|Invali[dg] config |rank \d+ exceeds ndev="
            r"|argument (?:not|must be) initialized via NCCL_|operator (?:is (?:a NCCL|garbage)|unknown)"
            r"|unknown to this communicator|supplied to user-created|captured by the same graph"
            r"|can be CUDA graph captured|not in a group call|Blocking and nonblocking communicators"
            r"|corrupted comm object|ncclCommGrow: |Invalid NCCL_COMM_ID|should not be called when NCCL_"
            r"|nccl(?:Put|Wait)Signal: |FP8 reduction support begins with|no algorithm/protocol available"
            r"|does not support symmetric memory|User requested GIN|Window address must be"
            r"|Window registration of addresses|does not match the parent|unsupported collective)"
        ),
        meaning="NCCL was called with an argument that it refuses: rank, device, root or pointer.",
        action="Compare RANK, WORLD_SIZE and the device of each rank with what the launcher set.",
        source="NVIDIA/nccl src/init.cc, src/misc/argcheck.cc; pytorch-lightning#20219",
        fires="node01:812:812 [0] init.cc:1661 NCCL WARN Invalid rank requested : 1/1",
        spares="node01:812:812 [0] NCCL INFO Invalid rank requested was mended",
        trust="B",
    ),
    LogRule(
        code="UH7003",
        slug="nccl-world-sizes-differ",
        family="disagreement",
        role="cause",
        anchors=("Bootstrap Root : mismatch in",),
        pattern=(
            r"Bootstrap Root : mismatch in (?:rank count from procs|info from procs),? ?"
            r"(?:nranks )?(?P<size>\d+) (?::|vs) (?P<other>\d+)"
        ),
        meaning="Processes that meet in NCCL's bootstrap were told different numbers of ranks.",
        action="Compare WORLD_SIZE on all nodes; look for what an earlier launch left behind.",
        source="NVIDIA/nccl src/bootstrap.cc",
        fires="bootstrap.cc:126 NCCL WARN Bootstrap Root : mismatch in rank count from procs 16 : 8",
        spares="NCCL INFO Bootstrap Root : 16 ranks have checked in",
        trust="B",
        blames="nobody",
    ),
    LogRule(
        code="UH7004",
        slug="nccl-no-transport",
        family="transport",
        role="cause",
        anchors=("No transport found for rank", "has no transport for"),
        pattern=(
            r"No transport found for rank (?P<one>\d+)\[\w+\] -> rank (?P<other>\d+)"
            r"|Rank (?P<here>\d+) has no transport for (?:send|recv) peer (?P<peer>\d+)"
        ),
        meaning="NCCL found no way from one rank to another: neither peer to peer, memory nor network.",
        action="NCCL_DEBUG=INFO shows which ways were tried; look at NCCL_*_DISABLE settings.",
        source="NVIDIA/nccl src/transport.cc",
        fires="transport.cc:36 NCCL WARN No transport found for rank 3[5000] -> rank 9[1a000]",
        spares="NCCL INFO transport found for rank 3",
        trust="B",
        blames="nobody",
    ),
    LogRule(
        code="UH7005",
        slug="ib-devices-incompatible",
        family="transport",
        role="cause",
        anchors=("incompatible devices", "device is incompatible with the local"),
        pattern=(
            r"NET/IB : (?:Attempted to (?:connect|merge) incompatible devices"
            r"|Remote \w+ device is incompatible with the local)"
        ),
        meaning="Cards of different link types (InfiniBand and Ethernet) were paired.",
        action="Name cards of one type only in NCCL_IB_HCA, the same on every node.",
        source="NVIDIA/nccl src/transport/net_ib",
        fires=(
            "NCCL WARN NET/IB : Attempted to connect incompatible devices: [0]mlx5_0:1/IB and "
            "[1]mlx5_4:1/RoCE. Try selecting NICs of only one link type using NCCL_IB_HCA"
        ),
        spares="NCCL INFO NET/IB : connected compatible devices",
        trust="B",
        blames="nobody",
    ),
    LogRule(
        code="UH7006",
        slug="ib-card-event",
        family="transport",
        role="cause",
        anchors=(
            "Got async event",
            "async fatal event",
            *("marked as failed", "failed devices", "Could not find a functional device"),
            *("number of probing attempts", "The error is fatal", "Got CQE with error"),
            "non-fatal async event",
        ),
        pattern=(
            r"NET/IB ?: (?:(?:(?P<device>[\w:]+) )?(?:async fatal event|Got async event : "
            r"(?P<what>port error|device fatal|\w+ fatal|local catastrophic|.*error.*)"
            r"|Got non-fatal async event: (?P<told>[^(]*(?:error|fatal|catastrophic)\b))"
            r"|(?:\w+: )?(?:Device \d+ marked as failed|(?:Fatal error\. )?Detected \d+ failed devices"
            r"|Could not find a functional device|Maximum number of probing attempts"
            r"|The error is fatal|Got CQE with error))"
        ),
        meaning="A network card reported a port that went down, or a fatal error of its own.",
        action="ibstat and dmesg on that host; the link counters of the card and of its switch port.",
        source="NVIDIA/nccl src/transport/net_ib; 2.26 and later call a port that goes down non-fatal",
        fires="transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_2:1 Got async event : port error",
        spares="NCCL WARN NET/IB : mlx5_2:1 Got non-fatal async event: client reregistration(17)",
        trust="B",
    ),
    LogRule(
        code="UH7007",
        slug="mnnvl-broken",
        family="device",
        role="cause",
        anchors=("is available but not working on this", "is available but not supported on this"),
        pattern=r"MNNVL \(cliqueSize (?P<clique>\d+)\) is available but not (?:work|support)\w+ on this",
        meaning="NVLink between nodes is there and does not work: the IMEX daemon or its channels.",
        action="nvidia-imex-ctl -N on the nodes; NCCL_MNNVL_ENABLE=0 gets the job going.",
        source="NVIDIA/nccl src/mnnvl.cc",
        fires=(
            "mnnvl.cc:66 NCCL WARN MNNVL (cliqueSize 8) is available but not working on this "
            "system. Check the IMEX configuration (nvidia-imex-ctl -N). Set NCCL_MNNVL_ENABLE=0"
        ),
        spares="NCCL INFO MNNVL 1 cliqueId 7 cliqueSize 8 cliqueRank 0",
        trust="B",
    ),
    LogRule(
        code="UH7008",
        slug="nccl-topology-unreadable",
        family="environment",
        role="cause",
        anchors=(
            *(
                "Attribute ",
                "XML Parse",
                "XML Mismatch",
                "XML Topology has wrong version",
                "XML Graph has",
            ),
            *("Failed to find reverse path", "Could not read node #", "No path computed to go"),
            *(
                "Could not open XML",
                "could not find CPU close to GPU",
                "Could not find real path of",
            ),
        ),
        pattern=(
            r"NCCL WARN (?:Error : )?(?:Attribute \S+ of node \S+ not found|XML (?:Parse|Mismatch"
            r"|(?:Topology|Graph) has wrong version)|Failed to find reverse path|Could not read node #"
            r"|No path computed to go|Could not open XML|could not find CPU close to GPU"
            r"|Could not find real path of)"
        ),
        meaning="NCCL could not make sense of the machine's topology: /sys, or a topology file.",
        action="Check NCCL_TOPO_FILE and the plugin's file; give the container /sys of its host.",
        source="NVIDIA/nccl src/graph; nccl#1726, rccl#1728",
        fires="ip-10-0-1-7:812:812 [0] graph/xml.h:99 NCCL WARN Attribute arch of node cpu not found",
        spares="NCCL INFO Attribute coll of node net not found",
        trust="B",
    ),
    LogRule(
        code="UH7009",
        slug="nccl-proxy-failed",
        family="failure",
        role="consequence",
        anchors=(
            *(
                "Failed to execute operation",
                "Socket recv failed while polling",
                "[Service thread]",
            ),
            *("Proxy Call to rank", "ncclProxyC", "Proxy response for opId", "[Proxy Service"),
        ),
        pattern=(
            r"NCCL WARN (?:\[Proxy Service[^\]]*\] (?:Failed to execute operation|Poll failed"
            r"|proxyDestroy failed)|Socket recv failed while polling|\[Service thread\] "
            r"|Proxy Call to rank|ncclProxyC\w+ call to|Proxy response for opId)"
        ),
        meaning="NCCL's helper thread passes on that a connection or a call below it failed.",
        action="Read the NCCL WARN before it, and the oldest one of any rank.",
        source="NVIDIA/nccl src/proxy.cc; nccl#952, nccl-tests#166",
        fires=(
            "node:922:1158 [3] proxy.cc:1519 NCCL WARN [Proxy Service 11] Failed to execute "
            "operation Connect from rank 11, retcode 2"
        ),
        spares="NCCL INFO [Proxy Service] Device 1 CPU core 9",
        trust="B",
    ),
    LogRule(
        code="UH7010",
        slug="nccl-ended-already",
        family="failure",
        role="consequence",
        anchors=(
            *("driver shutting down", "is in abort state", "communicator was revoked"),
            *("commReclaim: ", "commDestroySync: ", "ncclCommSetAsyncError: "),
            *("before the previous operation returned ncclSuccess", "has already been destroyed"),
            *(
                "encountered a fatal error (detected in",
                "ncclProxyStop: comm",
                "Legacy IPC cleanup",
            ),
        ),
        pattern=(
            r"Cuda failure (?:4 )?'driver shutting down'|Comm \S+ is in abort state"
            r"|: communicator was revoked|comm(?:Reclaim|DestroySync): comm|ncclCommSetAsyncError: "
            r"|before the previous operation returned ncclSuccess|comm \S+ has already been destroyed"
            r"|communicator encountered a fatal error \(detected in|ncclProxyStop: comm|Legacy IPC cleanup"
        ),
        meaning="NCCL was torn down already when this was called: an effect of an earlier end.",
        action="Look at what came before.",
        source="NVIDIA/nccl src/init.cc; nccl#1485",
        fires="node2:24881:25569 [0] include/alloc.h:243 NCCL WARN Cuda failure 'driver shutting down'",
        spares="NCCL INFO comm 0x7f is in use",
        trust="B",
    ),
    LogRule(
        code="UH7011",
        slug="nccl-devices-uneven",
        family="environment",
        role="cause",
        anchors=("Detected mixed local",),
        pattern=r"Detected mixed local (?:CollNet|Net) device counts across ranks \(min (?P<least>\d+), "
        r"max (?P<most>\d+)\)",
        meaning="Nodes of one job have different numbers of network cards.",
        action="Look for a card that is gone on one node: ibstat on each; unhang doctor net.",
        source="NVIDIA/nccl src/init.cc",
        fires=(
            "init.cc:901 NCCL WARN Detected mixed local Net device counts across ranks (min 7, max "
            "8). Set NCCL_IGNORE_NET_MISMATCH=1 to continue."
        ),
        spares="NCCL INFO Detected local Net device counts across ranks (min 8, max 8)",
        trust="B",
        blames="nobody",
    ),
    LogRule(
        code="UH7012",
        slug="nvlink-peer-disabled",
        family="device",
        role="cause",
        anchors=("P2P is disabled between NVLINK connected GPUs",),
        pattern=r"P2P is disabled between NVLINK connected GPUs (?P<one>\d+) and (?P<other>\d+)",
        meaning="Two GPUs that NVLink connects cannot reach each other: probably the hardware.",
        action="nvidia-smi nvlink -s and dmesg on that host; drain the node.",
        source="NVIDIA/nccl src/graph/paths.cc",
        fires=(
            "graph/paths.cc:321 NCCL WARN P2P is disabled between NVLINK connected GPUs 3 and 4. "
            "This should not be the case given their connectivity"
        ),
        spares="NCCL INFO P2P is disabled between connected GPUs 3 and 4",
        trust="B",
    ),
    LogRule(
        code="UH7013",
        slug="nccl-too-old",
        family="environment",
        role="cause",
        anchors=(
            *(
                "NCCL library is too old",
                "NCCL library version is too old",
                "is not backwards compatible",
                "too old version of NCCL",
            ),
            *("CUDA Driver version found is", "CUDA driver version is insufficient"),
        ),
        pattern=(
            r"NCCL library (?:version )?is (?:too old|not backwards compatible)|compiled with too old version of "
            r"NCCL|CUDA Driver version found is \d|CUDA driver version is insufficient"
        ),
        meaning="The program, NCCL and the driver do not fit each other.",
        action="Use the NCCL that torch brings, and a driver as new as its CUDA; unhang doctor env.",
        source="NVIDIA/nccl src/dev_runtime.cc, src/misc/cudawrap.cc",
        fires=(
            "NCCL WARN NCCL library is too old. This application was compiled with NCCL version "
            "2.29.2, but is running with NCCL library version 2.27.3."
        ),
        spares="NCCL version 2.27.3+cuda12.9",
        trust="B",
    ),
    LogRule(
        code="UH7014",
        slug="nvml-refuses",
        family="device",
        role="cause",
        anchors=("NCCL WARN nvml", "Failed to open libnvidia-ml"),
        pattern=r"NCCL WARN (?P<call>nvml\w+)\(.*\) failed: (?P<what>.*)|Failed to open libnvidia-ml",
        meaning="The driver's library does not know a GPU that this rank uses, or cannot be asked.",
        action="nvidia-smi on that host and in its container; compare CUDA_VISIBLE_DEVICES.",
        source="NVIDIA/nccl src/misc/nvmlwrap.cc; nccl#1529",
        fires="misc/nvmlwrap.cc:183 NCCL WARN nvmlDeviceGetHandleByPciBusId() failed: Not Found",
        spares="NCCL INFO nvmlDeviceGetHandleByPciBusId() succeeded",
        trust="B",
    ),
    LogRule(
        code="UH7015",
        slug="ib-completion-error",
        family="transport",
        role="cause",
        anchors=("Got completion ",),
        pattern=(
            r"Got completion (?:from peer (?P<peer>\S+) )?with (?:error |status=)(?:IBV_WC_)?"
            r"(?P<status>[A-Z_]+\(\d+\)|\d+)"
        ),
        meaning="The network card ended a transfer with an error.",
        action="Look the status up in ibv_wc_status; the link counters of both ends.",
        source="NVIDIA/nccl src/transport/net_ib",
        fires=(
            "NCCL WARN NET/IB: Got completion from peer 10.0.0.7<41023> with status="
            "IBV_WC_REM_ACCESS_ERR(10) opcode=IBV_WC_SEND(0) vendor_err=136"
        ),
        spares="NCCL INFO NET/IB: Got completion from peer 10.0.0.7",
        trust="B",
    ),
    LogRule(
        code="UH7016",
        slug="nccl-warns-in-vain",
        family="evidence",
        role="noise",
        anchors=(
            *(
                "falling back to simple order",
                "Cannot initialize CollNet",
                "greater than the maximum",
            ),
            *("non-fatal async event", "is being ignored because", "Ignoring SHM locality"),
            *("unlink shared memory", "GID table changed", 'Missing "', "munmap of shared memory"),
            *("cap it to", "imiting value to", "set both to", ", limiting to", "set it to 0"),
            *(
                "setting it to 1",
                "disabling CollNet",
                "Continue without profiler",
                "Unsetting POLICY",
            ),
            *(
                "not dumping",
                "Skipping nvlink",
                "ignoring NCCL_ALGO",
                ", ignoring",
                "is ignored due to",
            ),
            *(
                "using dlid as fallback",
                "Enabling pre-posting",
                "CC On, Multi-GPU",
                "NUMA auto balancing",
            ),
            *("due to old driver, disabling", "Got async event : ", "stale CQE", "not using it"),
            *("isabling MSCCL", "isabling clique", "MSCCL++: ", "RAS thread terminating"),
        ),
        pattern=(
            r"NCCL WARN .*?(?:falling back to simple order|Cannot initialize CollNet"
            r"|greater than the maximum allowed, setting|non-fatal async event: (?![^(]*(?:error|fatal))|is being ignored because"
            r"|Ignoring SHM locality|(?:unlink|munmap of) shared memory|GID table changed|Missing \""
            r"|cap it to|imiting value to|set both to|, limiting to|setting? it to [01]|disabling CollNet"
            r"|Continue without profiler|Unsetting POLICY|not dumping|Skipping nvlink|ignoring NCCL_ALGO"
            r"|, ignoring|is ignored due to|using dlid as fallback|Enabling pre-posting|CC On, Multi-GPU"
            r"|NUMA auto balancing|due to old driver, disabling|stale CQE|not using it|isabling MSCCL"
            r"|isabling clique|MSCCL\+\+: |RAS thread terminating"
            r"|Got async event : (?!.*(?:error|fatal|catastrophic)))"
        ),
        meaning="NCCL takes another way and goes on: jobs that end well print it too.",
        action="Nothing.",
        source="NVIDIA/nccl src/graph/search.cc, src/transport.cc; LlamaFactory#8036",
        fires=(
            "AIS:2374:2645 [0] graph/search.cc:1127 NCCL WARN Could not find a path for pattern 1, "
            "falling back to simple order"
        ),
        spares="NCCL WARN Could not find a path",
        harmless=True,
    ),
    LogRule(
        code="UH7017",
        slug="nccl-return-code",
        family="failure",
        role="observation",
        anchors=("[Async thread]", ".cc:"),
        pattern=r"NCCL INFO (?:\S*/)?(?:group|init|bootstrap|proxy|transport|socket|enqueue|net_\w+)"
        r"\.cc:\d+ -> (?P<code>[1-9])\b",
        meaning="A call inside NCCL returned an error, and says no more here.",
        action="Read the NCCL WARN before it; run again with NCCL_DEBUG=INFO on all ranks.",
        source="NVIDIA/nccl src/include/checks.h; nccl#1099",
        fires="node20-01:191191:219889 [0] NCCL INFO group.cc:64 -> 2 [Async thread]",
        spares="node20-01:191191:219889 [0] NCCL INFO init.cc:1303 Cuda Host Alloc Size 4",
        trust="C",
    ),
    LogRule(
        code="UH7018",
        slug="symmetric-buffers-differ",
        family="disagreement",
        role="cause",
        anchors=("symmetric registration check failed", "Elastic GIN: rank"),
        pattern=r"symmetric registration check failed on rank (?P<rank>\d+)|Elastic GIN: rank \d+ has",
        meaning="Ranks registered different buffers for one symmetric collective.",
        action="Register the same windows, sizes and offsets on all ranks.",
        source="NVIDIA/nccl src/misc/argcheck.cc",
        fires=(
            "NCCL WARN Coll AllReduce size 4096 symmetric registration check failed on rank 3: recv "
            "buffer window (0x7f) mismatch with rank 0 (0x7e)"
        ),
        spares="NCCL INFO symmetric registration check passed",
        trust="B",
        blames="nobody",
    ),
)
