"""Which part of NCCL or RCCL warns, by its source file, where no rule knows the words (UH7060 to UH7066).

NCCL has hundreds of warnings, and more with every release: its file tells what a new one is about.
"""

from __future__ import annotations

from unhang.kinds import Family
from unhang.logs.rules.base import LogRule

__all__ = ["RULES"]

_WARNS = r"\.(?:cc?|h|cu|cpp):\d+ (?:NCCL )?WARN "


def _part(
    code: str,
    slug: str,
    family: Family,
    files: str,
    told: tuple[str, str],
    line: str,
    words: str = "",
) -> LogRule:
    """A part of NCCL: its files within the sources, or the words that its warnings begin with."""
    return LogRule(
        code=code,
        slug=slug,
        family=family,
        role="observation",
        anchors=("NCCL WARN",),
        pattern=rf"(?P<file>\b(?:{files})){_WARNS}" + (f"|NCCL WARN (?:{words})" if words else ""),
        meaning=told[0],
        action=told[1],
        source="NVIDIA/nccl src, 2.18 to 2.29; ROCm/rccl src",
        fires=line,
        spares=line.replace("WARN", "INFO"),
        trust="B",
    )


RULES: tuple[LogRule, ...] = (
    _part(
        "UH7060",
        "nccl-warns-of-memory",
        "environment",
        r"misc/shm\w*|transport/shm|mem_manager|allocator|include/alloc|clique/\w+",
        (
            "NCCL warns of shared memory or of its buffers.",
            "Check /dev/shm, the limits of memory and what GPUs have left on that host.",
        ),
        "node1:11:42 [0] transport/shm.cc:590 NCCL WARN Invalid argument desc 0x7f12",
        words=r"MemManager: |MSCCL: Size of allocation",
    ),
    _part(
        "UH7061",
        "nccl-warns-of-network",
        "transport",
        r"misc/(?:socket|ipcsocket|ibv\w*|mlx5dv\w*)|include/(?:socket|ibv\w*)|bootstrap|os/\w+"
        r"|(?:transport/)?(?:net|coll_net|generic|gdaki)[\w/]*|(?:transport/)?gin[\w/]*|rma/\w+|ib_plugin",
        (
            "NCCL warns of a connection, of a network card, or of its plugin.",
            "Read the NCCL WARN lines of both ends; unhang doctor net between the two hosts.",
        ),
        "node1:11:42 [0] misc/socket.cc:318 NCCL WARN ncclSocketListen: pass NULL socket",
        words=r"(?:NET|GIN|RMA)[/ ]|Net : |UDS: |OFI ",
    ),
    _part(
        "UH7062",
        "nccl-warns-of-topology",
        "environment",
        r"graph/\w+|misc/(?:alt_)?rsmi|alt_rsmi",
        (
            "NCCL warns of the machine's topology, or of the rings and trees that it made of it.",
            "Check NCCL_TOPO_FILE and NCCL_GRAPH_FILE; give the container /sys of its host.",
        ),
        "node1:11:42 [0] graph/topo.cc:812 NCCL WARN Could not find NET with id 1f",
        words=r"(?:TOPO/NET|NET/TOPO|XML|Error : (?:ring|XML)) ",
    ),
    _part(
        "UH7063",
        "nccl-warns-of-device",
        "device",
        r"misc/(?:nvml|cuda|gdr|roc)\w*|include/(?:nvml|cuda|gdr|roc)\w*|transport/(?:p2p|nvls)|mnnvl",
        (
            "NCCL warns of a GPU, of its driver, or of the way between two GPUs.",
            "nvidia-smi (or rocm-smi) and dmesg on that host; compare the driver with NCCL's needs.",
        ),
        "node1:11:42 [0] transport/p2p.cc:216 NCCL WARN cudaIpcGetMemHandle failed : unknown",
    ),
    _part(
        "UH7064",
        "nccl-proxy-warns",
        "failure",
        r"proxy|transport/profiler|register(?:/\w+)?",
        (
            "NCCL's helper thread stumbled: mostly an effect of what another rank or a call met.",
            "Read the oldest NCCL WARN of any rank.",
        ),
        "node1:11:42 [0] proxy.cc:1143 NCCL WARN Couldn't find opId=0x7f12",
    ),
    _part(
        "UH7065",
        "nccl-warns-of-ras",
        "evidence",
        r"ras/\w+|plugin/(?:profiler|tuner)[\w/]*|inspector\w*|misc/(?:tuner|profiler)",
        (
            "NCCL's own watching (RAS), or a plugin that profiles or tunes it, is in trouble.",
            "It does not stop a job: read the other lines first.",
        ),
        "node1:11:42 [0] ras/ras.cc:700 NCCL WARN RAS received unknown notification type 3",
    ),
    _part(
        "UH7066",
        "nccl-warns-of-itself",
        "failure",
        r"init\w*|enqueue|group|channel|transport|dev_runtime|misc/(?:argcheck|strongstream|utils|param"
        r"|msccl/\w+)|include/(?:checks|utils|comm)|plugin/\w+|scheduler/\w+|(?:sym|symmetric)\w*"
        r"|ce_coll|collectives|api_trace",
        (
            "NCCL warns of a call or a state within itself.",
            "Read it, and the oldest NCCL WARN of any rank; compare versions and settings of the ranks.",
        ),
        "node1:11:42 [0] enqueue.cc:1411 NCCL WARN Unknown pattern 3",
        words=r"MSCCL|Call to ",
    ),
)
