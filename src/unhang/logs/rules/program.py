"""Messages of the program, its storage and its scheduler (UH776 to UH794)."""

from __future__ import annotations

from unhang.kinds import Remedy, Trait
from unhang.logs.rules.base import LogRule

__all__ = ["AGAIN", "RULES"]

AGAIN = (
    "Find the call that causes it: unhang run --blocking -- CMD; without a GPU, where the same "
    "mistake mostly is a plain exception: unhang run --on-cpu -- CMD; with one rank on one GPU: "
    "unhang run --one-gpu -- CMD."
)
"""An asynchronous error shows at a later call than the one that made it."""

RULES: tuple[LogRule, ...] = (
    LogRule(
        code="UH776",
        slug="disk-full",
        family="environment",
        role="cause",
        anchors=("No space left on device", "Disk quota exceeded"),
        pattern=(
            r"(?:\[Errno (?:28|122)\] |OSError.*|IOError.*|write.*?: |failed.*?: )"
            r"(?P<what>No space left on device|Disk quota exceeded)"
        ),
        meaning="A write of this rank failed: the rank stops, or retries while the others wait.",
        action="Free space on that file system of that host, then restart from the checkpoint.",
        source="field reports of checkpoint writers",
        fires="OSError: [Errno 28] No space left on device: '/ckpt/step_100/rank_5.pt'",
        spares="No space left on device in the design document",
    ),
    LogRule(
        code="UH777",
        slug="storage-error",
        family="environment",
        role="cause",
        anchors=(
            *("Stale file handle", "Input/output error", "Transport endpoint is not connected"),
            *("nfs: server", "failed writing file", "unexpected pos ", "Remote I/O error"),
        ),
        pattern=(
            r"nfs: server \S+ (?:not responding|timed out)|PytorchStreamWriter failed writing file"
            r"|unexpected pos \d+ vs \d+|\[Errno 121\] Remote I/O error|"
            r"^(?!.*\bUCX\b).*(?:\[Errno \d+\] |: )(?P<what>Stale file handle|Input/output error|Transport "
            r"endpoint is not connected)"
        ),
        meaning="The file system of this host failed under the program.",
        action="Check that mount on that host.",
        source="Linux errno",
        fires="OSError: [Errno 116] Stale file handle: '/data/shard_0007.tar'",
        spares="handling Input/output errors in the loader",
    ),
    LogRule(
        code="UH778",
        slug="illegal-memory-access",
        family="failure",
        role="cause",
        anchors=("an illegal memory access was encountered", "Memory access fault by GPU"),
        pattern=(
            r"(?:CUDA|HIP) error: an illegal memory access was encountered"
            r"|Memory access fault by GPU \W{0,2}node-(?P<node>\d+)"
        ),
        meaning="A kernel of this rank read or wrote outside its memory, some calls before here.",
        action=AGAIN,
        source="CUDA runtime",
        fires="RuntimeError: CUDA error: an illegal memory access was encountered",
        spares="checking for an illegal memory access",
        traits=Trait.OF_A_KERNEL,
        remedy=Remedy.CODE,
        echoed=True,
    ),
    LogRule(
        code="UH779",
        slug="device-assert",
        family="failure",
        role="cause",
        anchors=("device-side assert triggered", "], thread: ["),
        pattern=(
            r"CUDA error: device-side assert triggered"
            r"|\.cuh?:\d+: .*block: \[[\d,]+\], thread: \[[\d,]+\] Assertion `.*` failed"
        ),
        meaning="An assertion in a kernel failed: mostly an index out of range (labels, tokens).",
        action=AGAIN,
        source="CUDA runtime",
        fires="RuntimeError: CUDA error: device-side assert triggered",
        spares="a device-side assert was not triggered",
        echoed=True,
        traits=Trait.OF_A_KERNEL,
        remedy=Remedy.CODE,
    ),
    LogRule(
        code="UH780",
        slug="reported-later",
        family="evidence",
        role="hint",
        anchors=("might be asynchronously reported at some other API call",),
        pattern=r"kernel errors might be asynchronously reported at some other API call",
        meaning="The traceback shows where the error was noticed, not where it happened.",
        action=AGAIN,
        source="PyTorch",
        fires=(
            "CUDA kernel errors might be asynchronously reported at some other API call, so the "
            "stacktrace below might be incorrect."
        ),
        spares="errors are reported asynchronously",
        traits=Trait.REPORTED_LATER | Trait.OF_A_KERNEL,
    ),
    LogRule(
        code="UH781",
        slug="cuda-error",
        family="device",
        role="cause",
        anchors=(
            *("CUDA error: ", "CUDA driver error: ", "HIP failure: ", "HIP error: "),
            *("HW Exception by GPU node", "HSA_STATUS_ERROR_", "cuda runtime error ("),
            *("ur_die: ", "UR_RESULT_ERROR_", "ZE_RESULT_ERROR_"),
        ),
        pattern=(
            r"(?:CUDA|HIP) (?:driver )?error: (?P<what>(?!initialization)[a-z][^.\n]{3,80})"
            r"|HIP failure: '(?P<hip>[^']{3,80})'|HW Exception by GPU node-\d+"
            r"|(?P<hsa>HSA_STATUS_ERROR_[A-Z_]+)|cuda runtime error \(\d+\) : (?P<old>[^.\n]{3,80})"
            r"|^ur_die: (?P<ur>.{3,80})|\b(?P<level_zero>(?:UR|ZE)_RESULT_ERROR_(?!OUT_OF)[A-Z_]+)"
        ),
        meaning="A call of CUDA, HIP or Level Zero of this rank failed.",
        action="Look at the first rank with it; dmesg of its host for Xid lines.",
        source="CUDA runtime; Intel Unified Runtime",
        fires="torch.AcceleratorError: CUDA error: unspecified launch failure",
        spares="CUDA errors: 0",
        trust="B",
        echoed=True,
    ),
    LogRule(
        code="UH782",
        slug="segmentation-fault",
        family="failure",
        role="cause",
        anchors=(
            *("Segmentation fault", "Fatal Python error", "Caught signal 7 (Bus error"),
            *("Signal: Bus error", "Signal: Illegal", "Signal: Floating", "exited on signal "),
            *("EXIT STRING: ", "KILLED BY SIGNAL: "),
            *("free(): ", "double free or corruption", "malloc", "corrupted size vs. "),
            *("munmap_chunk(): ", "*** stack smashing", "*** buffer overflow"),
        ),
        echoed=True,
        pattern=(
            r"(?:EXIT STRING: |KILLED BY SIGNAL: \d+ \()(?:Segmentation fault|Bus error|Illegal instr"
            r"|Floating point)|Fatal Python error: (?!Aborted)(?P<what>[\w ]+)|Segmentation fault \(core dumped\)"
            r"|^(?:\S+: )?(?:free\(\): |double free or corruption|malloc\w*\(\): |corrupted size vs\. "
            r"|munmap_chunk\(\): |\*\*\* (?:stack smashing|buffer overflow) detected)"
            r"|Signal: (?:Segmentation fault|Bus error|Illegal instruction|Floating point \w+) \(\d+\)"
            r"|process rank (?P<ranks>\d+) with PID (?P<pid>\d+) on node (?P<node>\S+) exited on signal "
            r"(?:4|7|8|11)\b"
            r"|Caught signal (?:11 \(Segmentation fault|7 \(Bus error)"
            r"|srun: error: (?P<host>\S+): tasks? (?P<tasks>[\d,-]+): Segmentation fault"
        ),
        meaning="The process crashed in native code.",
        action="Open its core file with unhang core.",
        source="CPython faulthandler; UCX; glibc",
        fires="Fatal Python error: Segmentation fault",
        spares="no Segmentation fault was seen",
        traits=Trait.ENDING,
    ),
    LogRule(
        code="UH783",
        slug="time-limit",
        family="environment",
        role="cause",
        anchors=(
            *("DUE TO TIME LIMIT", "TERM_RUNLIMIT", "exceeded limit", "DeadlineExceeded"),
            "exceeded wallclock limit",
        ),
        pattern=(
            r"(?:CANCELLED|STEP \S+) .*DUE TO TIME LIMIT|TERM_RUNLIMIT"
            r"|job (?:killed: walltime \d+ exceeded limit|exceeded wallclock limit)|\breason\W{1,8}DeadlineExceeded"
        ),
        meaning="The scheduler ended the job at its time limit.",
        action="Ask for more time; check that it made progress until then.",
        source="SLURM",
        fires="slurmstepd: error: *** JOB 812 ON node01 CANCELLED AT 2025-09-22T22:47:17 DUE TO "
        "TIME LIMIT ***",
        spares="TIME LIMIT is 2 days",
        remedy=Remedy.RETRY,
    ),
    LogRule(
        code="UH784",
        slug="cancelled",
        family="environment",
        role="observation",
        anchors=("CANCELLED AT",),
        pattern=r"\*\*\* (?:JOB|STEP) (?P<job>\S+) ON (?P<host>\S+) CANCELLED AT"
        r"(?:.* DUE TO (?P<reason>JOB REQUEUE|PREEMPTION))?",
        meaning="Somebody or the scheduler cancelled the job.",
        action="If nobody did, look for a node failure in the scheduler's log.",
        source="SLURM",
        fires="slurmstepd: error: *** STEP 812.0 ON node01 CANCELLED AT 2025-09-22T22:47:17 ***",
        spares="the job was not CANCELLED",
    ),
    LogRule(
        code="UH785",
        slug="node-failed",
        family="environment",
        role="cause",
        anchors=(
            *("NODE FAILURE", "Node failure on", "lost communication with a remote daemon"),
            *("Owner's node has crashed", "missed too many heartbeats", "NodeLost", "NodeNotReady"),
            *("The node was deleted", "DUE TO NODE", "node is NotReady"),
        ),
        pattern=(
            r"DUE TO NODE FAILURE|Node failure on (?P<host>\S+)|Owner's node has crashed"
            r"|(?:ORTE|PRTE|PRRTE) has lost communication with a remote daemon"
            r"|marked dead because the detector has missed too many heartbeats"
            r"|\b(?:NodeLost|NodeNotReady)\b"
        ),
        below=r"Remote daemon: \S+ on node (?P<host>\S+)",
        below_mark="Remote daemon: ",
        meaning="The scheduler or the launcher lost a node.",
        action="Take that node out and restart.",
        source="SLURM",
        fires="srun: error: Node failure on node07",
        spares="node failures are retried",
        remedy=Remedy.REPLACE,
    ),
    LogRule(
        code="UH786",
        slug="task-exited",
        family="failure",
        role="observation",
        anchors=("Exited with exit code", "exited on signal"),
        pattern=(
            r"(?:task|tasks) (?P<tasks>[\d,\-]+): Exited with exit code (?P<exitcode>\d+)"
            r"|process rank (?P<rank>\d+) with PID (?P<pid>\d+) on node (?P<host>\S+) exited on "
            r"signal (?P<signal>\d+)"
        ),
        meaning="The launcher saw this task end.",
        action="Read that rank's own last lines.",
        source="SLURM, Open MPI",
        fires="srun: error: node01: task 3: Exited with exit code 1",
        spares="the task Exited with success",
    ),
    LogRule(
        code="UH787",
        slug="host-memory-error",
        family="failure",
        role="cause",
        anchors=(
            *("MemoryError", "DefaultCPUAllocator: can't allocate memory"),
            *(
                "Failed to malloc ",
                "Failed to CUDA host alloc",
                "Unrecoverable error detected: malloc",
            ),
        ),
        pattern=(
            r"^MemoryError\b|DefaultCPUAllocator: can't allocate memory|NCCL WARN (?:Failed to (?:malloc"
            r"|CUDA host alloc) (?P<bytes>\d+) bytes|.*Unrecoverable error detected: malloc)"
        ),
        meaning="The host had no memory left for this rank.",
        action="Lower host memory use or ask for more.",
        source="CPython, PyTorch",
        fires=(
            "RuntimeError: [enforce fail at alloc_cpu.cpp:114] . DefaultCPUAllocator: can't "
            "allocate memory: you tried to allocate 8589934592 bytes."
        ),
        spares="except MemoryError as error:",
    ),
    LogRule(
        code="UH788",
        slug="not-a-number",
        family="failure",
        role="cause",
        anchors=(
            "oss is NaN",
            "oss is nan",
            "oss became",
            "oss was",
            "returned nan",
            "found NaN in",
        ),
        pattern=(
            r"(?:Rank (?P<rank>\d+): )?(?:[Ll]oss (?:is|became|was) (?:NaN|nan)\b|returned nan values"
            r"|found NaN in .*?(?:grad|loss))"
        ),
        meaning="Values became NaN; a rank that stops or skips a step for it leaves the others.",
        action="Decide about skipping with an all_reduce, so that all ranks do the same.",
        source="Megatron-LM, PyTorch anomaly mode; Pai-Megatron-Patch#366",
        rank_writes=True,
        fires="RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.",
        spares="checking the loss for NaN every 10 steps",
        trust="B",
        remedy=Remedy.CODE,
    ),
    LogRule(
        code="UH789",
        slug="interrupted",
        family="failure",
        role="consequence",
        anchors=("KeyboardInterrupt", "SignalException"),
        pattern=r"^KeyboardInterrupt\b|SignalException: Process \d+ got signal",
        meaning="The program was interrupted from outside.",
        action="Look at what came before.",
        source="CPython, torchelastic",
        fires="torch.distributed.elastic.multiprocessing.api.SignalException: Process 812 got "
        "signal: 15",
        spares="except KeyboardInterrupt:",
    ),
    LogRule(
        code="UH790",
        slug="process-group-leaked",
        family="program",
        role="noise",
        anchors=("destroy_process_group() was not called",),
        pattern=r"destroy_process_group\(\) was not called before program exit",
        meaning="The program ended without closing its groups.",
        action="Nothing, unless ranks end at different times.",
        source="pytorch c10d",
        fires=(
            "WARNING: destroy_process_group() was not called before program exit, which can leak "
            "resources."
        ),
        spares="destroy_process_group() was called",
        harmless=True,
    ),
    LogRule(
        code="UH791",
        slug="no-current-device",
        family="program",
        role="hint",
        anchors=(
            *("used by this process is currently unknown", "used by this process are currently"),
            "rank to GPU mapping is heterogeneous",
        ),
        pattern=(
            r"devices? used by this process (?:is|are) currently unknown"
            r"|This can cause a hang if rank to GPU mapping is heterogeneous"
        ),
        meaning="A barrier had to guess the GPU of this rank; a wrong guess hangs.",
        action="Pass device_id to init_process_group, or call torch.cuda.set_device first.",
        source="pytorch distributed_c10d",
        fires=(
            "[rank1]:[W1120 ProcessGroupNCCL.cpp:4571] [PG ID 0 PG GUID 0 Rank 1]  using GPU 1 as "
            "device used by this process is currently unknown. This can potentially cause a hang if "
            "this rank to GPU mapping is incorrect."
        ),
        spares="the device of this process is cuda:1",
        trust="B",
        harmless=True,
    ),
    LogRule(
        code="UH792",
        slug="nccl-version-mismatch",
        family="environment",
        role="cause",
        anchors=("NCCL version", "Mismatched NCCL version"),
        pattern=r"[Mm]ismatched NCCL version|NCCL version mismatch",
        meaning="Ranks of one job run different NCCL versions.",
        action="Use one environment everywhere; unhang doctor env compares the nodes.",
        source="NCCL bootstrap.cc",
        fires=(
            "NCCL WARN Bootstrap Root : mismatched NCCL version detected, local 22703 remote 22105"
        ),
        spares="NCCL version 2.27.3+cuda12.9",
    ),
    LogRule(
        code="UH794",
        slug="distributed-exception",
        family="failure",
        role="consequence",
        anchors=(
            "DistBackendError: ",
            "DistNetworkError: ",
            "DistStoreError: ",
            "ChildFailedError",
            *("RuntimeError: NCCL error", "NCCL error in: "),
            *("ActorDiedError", "RayActorError", "ActorUnavailableError", "WorkerCrashedError"),
            *("root cause above", "(above) for the root cause", "above for the root cause"),
        ),
        pattern=(
            r"\b(?:Actor(?:Died|Unavailable)|RayActor|WorkerCrashed)Error\b: |^(?:\w+\.)*\w*(?:Error|Exception): "
            r".*(?:root cause above|above\)? for (?:the|more) (?:root cause|detail))|"
            r"(?P<type>DistBackendError|DistNetworkError|DistStoreError|ChildFailedError"
            r"|RuntimeError(?=: NCCL error(?: in)?: )): ?(?P<what>.*)"
            r"|^(?P<bare>NCCL error in: \S+:\d+, .*)"
        ),
        meaning="torch.distributed, Ray or an engine passes on a failure that began somewhere else.",
        action="Read the lines around it and the oldest error of any rank.",
        source="torch.distributed, Ray, vLLM",
        fires="torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690",
        spares="class DistBackendError(RuntimeError):",
    ),
)
