"""Messages of shared memory, P2P and NVLink inside a node (UH742 to UH754)."""

from __future__ import annotations

from unhang.kinds import Remedy
from unhang.logs.rules.base import LogRule

__all__ = ["RULES"]

RULES: tuple[LogRule, ...] = (
    LogRule(
        code="UH742",
        slug="shm-full",
        family="environment",
        role="cause",
        anchors=("posix_fallocate", "failed to extend /dev/shm"),
        pattern=(
            r"(?:posix_fallocate failed : |failed to extend /dev/shm/\S+ to \d+ bytes, error: )"
            r"No space left on device|failed to extend /dev/shm/\S+ to \d+ bytes(?!, error)"
        ),
        meaning="/dev/shm is too small for NCCL (containers start with 64 MB).",
        action="Enlarge it (docker --shm-size, an emptyDir of medium Memory in Kubernetes).",
        source="nccl#290, nccl#525, pytorch/ci-infra#490",
        fires=(
            "NCCL WARN Error: failed to extend /dev/shm/nccl-DSpZrr to 9637892 bytes, error: No "
            "space left on device (28)"
        ),
        spares="OSError: [Errno 28] No space left on device",
    ),
    LogRule(
        code="UH743",
        slug="shm-segment-missing",
        family="environment",
        role="cause",
        anchors=("while attaching to shared memory segment",),
        pattern=r"Error while attaching to shared memory segment (?P<segment>\S+)",
        meaning="Ranks of one node do not see each other's shared memory (separate namespaces).",
        action="Let them share it: docker --ipc=host, or one container per node.",
        source="vllm#18831",
        fires="NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-fUgBmE",
        spares="attached shared memory segment /dev/shm/nccl-fUgBmE",
        trust="C",
    ),
    LogRule(
        code="UH744",
        slug="shm-not-created",
        family="environment",
        role="observation",
        anchors=(
            *("while creating shared memory segment", "failed to create shared memory file"),
            "Could not map /dev/shm",
        ),
        pattern=(
            r"Error while creating shared memory segment (?P<segment>\S+)"
            r"|failed to create shared memory file (?P<file>\S+)|Could not map (?P<mapped>/dev/shm\S+)"
        ),
        meaning="A shared memory segment of NCCL could not be made.",
        action="Check the size of /dev/shm and remove stale nccl-* files in it.",
        source="nccl#1518, EasyR1#228",
        fires="NCCL WARN Error while creating shared memory segment /dev/shm/nccl-fUgBmE (size 4)",
        spares="created shared memory segment /dev/shm/nccl-fUgBmE",
        trust="B",
    ),
    LogRule(
        code="UH745",
        slug="peer-access-unsupported",
        family="environment",
        role="cause",
        anchors=("peer access is not supported",),
        pattern=r"(?:Cuda failure |IPC handle : )217 '?peer access is not supported",
        meaning="NCCL assumed direct access between two GPUs that does not exist here.",
        action="Set NCCL_CUMEM_HOST_ENABLE=0 (NCCL 2.24 or later) or NCCL_P2P_DISABLE=1.",
        source="nccl#1838, ray#64109, dask-cuda#639",
        fires=(
            "transport/shm.cc:590 NCCL WARN Cuda failure 217 'peer access is not supported between "
            "these two devices'"
        ),
        spares="peer access is not supported by this build, using shared memory",
    ),
    LogRule(
        code="UH746",
        slug="peer-mappings-exhausted",
        family="environment",
        role="cause",
        anchors=("peer mapping resources exhausted",),
        pattern=r"Cuda failure 711 'peer mapping resources exhausted'",
        meaning="One process maps more peers than the hardware has room for.",
        action="Use one process per GPU.",
        source="nccl-tests#324",
        fires="NCCL WARN Cuda failure 711 'peer mapping resources exhausted'",
        spares="mapping resources exhausted in the scheduler",
        trust="C",
    ),
    LogRule(
        code="UH747",
        slug="fabric-manager-not-running",
        family="device",
        role="cause",
        anchors=("system not yet initialized",),
        pattern=r"(?:Cuda failure 802 '|CUDA error: |Error 802: )system not yet initialized",
        meaning="NVLink switches are there and nvidia-fabricmanager does not run.",
        action="systemctl start nvidia-fabricmanager, in the version of the driver.",
        source="nccl-tests#264, pytorch#35710",
        fires="RuntimeError: CUDA error: system not yet initialized",
        spares="system not yet initialized: waiting for the boot to finish",
    ),
    LogRule(
        code="UH748",
        slug="nvls-broken",
        family="device",
        role="cause",
        anchors=(
            "nvls.cc",
            "NVLink SHARP (NVLS) Multicast",
            "FABRIC_STATE_OUT_OF_SYNC",
            "fabric state cached",
        ),
        pattern=(
            r"nvls\.cc:\d+ NCCL WARN Cuda failure|NV_ERR_FABRIC_STATE_OUT_OF_SYNC"
            r"|NVLink fabric state cached by the driver is out of sync"
            r"|Failed to bind NVLink SHARP \(NVLS\) Multicast memory"
        ),
        meaning="NVLink multicast is in a bad state (fabric manager restarted, or NVSwitch fault).",
        action="NCCL_NVLS_ENABLE=0 gets the job going; then reset the GPUs or the node.",
        source="nccl#1488, nccl#976, pytorch#177472",
        fires="transport/nvls.cc:254 NCCL WARN Cuda failure 1 'invalid argument'",
        spares="transport/nvls.cc:100 NCCL INFO NVLS multicast support is available on dev 0",
    ),
    LogRule(
        code="UH749",
        slug="duplicate-gpu",
        family="program",
        role="cause",
        anchors=("Duplicate GPU detected", "Multiple Ranks are using the same GPU"),
        pattern=(
            r"Multiple Ranks are using the same GPU|"
            r"Duplicate GPU detected : rank (?P<rank>\d+) and rank (?P<other>\d+) both on CUDA "
            r"device (?P<device>\w+)"
        ),
        meaning="Two ranks use the same GPU.",
        action="Call torch.cuda.set_device(local_rank), and start no more ranks than GPUs.",
        source="D-FINE#289, nccl#1241, torchtitan#1224",
        fires=(
            "init.cc:943 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device "
            "65000"
        ),
        spares="GPU 65000 detected by rank 1",
        blames="nobody",
        remedy=Remedy.CODE,
    ),
    LogRule(
        code="UH750",
        slug="dataloader-bus-error",
        family="failure",
        role="cause",
        anchors=("killed by signal: Bus error", "Unexpected bus error encountered in worker"),
        pattern=r"Unexpected bus error encountered in worker"
        r"|DataLoader worker \(pid\(?s?\)?:? ?(?P<pid>\d+)\) is killed by signal: Bus error",
        meaning="A data-loader worker ran out of shared memory.",
        action="Enlarge /dev/shm, or use fewer workers.",
        source="PyTorch DataLoader",
        fires=(
            "RuntimeError: DataLoader worker (pid 812) is killed by signal: Bus error. It is "
            "possible that dataloader's workers are out of shared memory."
        ),
        spares="RuntimeError: DataLoader worker (pid 812) is killed by signal: Terminated.",
    ),
    LogRule(
        code="UH751",
        slug="dataloader-worker-died",
        family="failure",
        role="cause",
        anchors=("DataLoader worker (pid",),
        pattern=(
            r"DataLoader worker \(pid\(?s?\)?:? ?(?P<pid>[\d, ]+)\) "
            r"(?:is killed by signal: (?P<signal>Killed|Segmentation fault|Aborted)"
            r"|exited unexpectedly)"
        ),
        meaning="A data-loader worker died, so this rank has no data and stops.",
        action="Look for the out-of-memory killer, or run with num_workers=0 to see the error.",
        source="PyTorch DataLoader",
        fires="RuntimeError: DataLoader worker (pid(s) 812) exited unexpectedly",
        spares="DataLoader worker (pid 812) started",
    ),
    LogRule(
        code="UH752",
        slug="cuda-out-of-memory",
        family="failure",
        role="cause",
        anchors=(
            *(
                "CUDA out of memory",
                "CUDA error: out of memory",
                "HIP out of memory",
                "NPU out of memory",
            ),
            *("HIP error: out of memory", "RESOURCE_EXHAUSTED: ", "XPU out of memory"),
        ),
        pattern=(
            r"(?:CUDA|HIP|NPU|XPU) (?:error: )?out of memory|RESOURCE_EXHAUSTED: .*?[Oo]ut of memory"
        ),
        meaning="A GPU ran out of memory; its rank leaves, its peers wait.",
        action="Find what is uneven on that rank: batch, sequence length, experts, left-overs.",
        source="PyTorch CUDA allocator",
        fires=(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a "
            "total capacity of 79.11 GiB"
        ),
        spares="the CUDA memory pool is out of date",
        remedy=Remedy.CODE,
    ),
    LogRule(
        code="UH753",
        slug="host-out-of-memory",
        family="failure",
        role="cause",
        anchors=(
            "Out of memory: Killed process",
            "oom-kill",
            "oom_kill",
            "Memory cgroup out of",
            "Out Of Memory",
            *("OOMKilled", "exceeded K8s pod memory", "due to the node running low on memory"),
            *("killed due to memory pressure", "exceeded memory limit", "TERM_MEMLIMIT"),
            "Out of memory: Kill process",
        ),
        pattern=(
            r"srun: error: (?P<host>\S+): tasks? (?P<tasks>[\d,-]+): Out Of Memory|"
            r"\bOOMKilled\b|exceeded K8s pod memory limits|due to the node running low on memory"
            r"|killed due to memory pressure|slurmstepd: error: .*exceeded memory limit|TERM_MEMLIMIT"
            r"|Out of memory: Kill process (?P<pid2>\d+)|"
            r"(?:Memory cgroup out|Out) of memory: Killed process (?P<pid>\d+) \((?P<name>[^)]+)\)"
            r"|[Dd]etected \d+ oom[-_]kill event|oom-kill:constraint="
        ),
        meaning="The kernel killed a process of this host for lack of memory.",
        action="Lower host memory use (workers, pinned buffers) or ask for more.",
        source="Linux oom_kill.c; SLURM",
        fires=(
            "[84123.5] Out of memory: Killed process 4711 (python3) total-vm:98123456kB, "
            "anon-rss:64123456kB"
        ),
        spares="oom-killer is disabled for this process",
        echoed=True,
    ),
    LogRule(
        code="UH754",
        slug="nccl-out-of-gpu-memory",
        family="failure",
        role="cause",
        anchors=("Failed to CUDA calloc", "Failed to CUDA malloc", "Cuda failure"),
        pattern=(
            r"Failed to CUDA [mc]alloc(?: async)? (?P<bytes>\d+) bytes"
            r"|(?:NCCL WARN |^)Cuda failure (?:2 )?'out of memory'"
        ),
        meaning="NCCL found no GPU memory for its buffers.",
        action="Leave head-room: fewer communicators, smaller NCCL_BUFFSIZE, smaller batch.",
        source="NCCL alloc.h",
        fires="NCCL WARN Failed to CUDA calloc async 608 bytes",
        spares="NCCL INFO CUDA calloc 608 bytes",
        trust="B",
    ),
)
