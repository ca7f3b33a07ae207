"""Messages of who starts, watches and ends processes: Kubernetes, SLURM, MPI, Ray (UH7020 to UH7029)."""

from __future__ import annotations

from typing import Final

from unhang.kinds import Trait
from unhang.logs.rules.base import LogRule

__all__ = ["RULES", "SERVING_STALLED"]

SERVING_STALLED: Final = LogRule(
    code="UH7026",
    slug="serving-stalled",
    family="evidence",
    role="observation",
    anchors=(
        *("Watchdog timeout (self.", "watchdog timeout (self.", "RPC call to"),
        *("Scheduler debug info:", "Pyspy dump for PID "),
    ),
    pattern=(
        r"[Ww]atchdog timeout \(self\.\w+=(?P<seconds>\d+)|RPC call to (?P<call>\w+) timed out"
        r"|^Scheduler debug info:|^Pyspy dump for PID \d+"
    ),
    meaning="The serving engine, or one of its workers, makes no step: no token, no answer.",
    action="Take the stacks of all ranks before the time is over: unhang stacks --native.",
    source="SGLang scheduler, vLLM multiproc_executor; sglang#3752",
    fires="[2025-03-09 00:57:15 TP4] Watchdog timeout (self.watchdog_timeout=300)",
    spares="watchdog_timeout=300",
    waits=(("call", "its workers to answer a call"), ("seconds", "its own step to end")),
    trust="B",
)

RULES: tuple[LogRule, ...] = (
    LogRule(
        code="UH7020",
        slug="pod-evicted",
        family="environment",
        role="cause",
        anchors=(
            "Evicted",
            "The node was low on resource",
            "evicted",
            "Preempted in order to admit",
        ),
        pattern=(
            r"\b[Rr]eason\W{1,8}(?:Evicted|Preempting)\b|The node was low on resource: (?P<what>[\w-]+)"
            r"|\bpod (?:was |has been )?evicted\b|Pod was evicted|Preempted in order to admit critical pod"
        ),
        meaning="Kubernetes took the pod away: its node was short of memory or disk, or it had to yield.",
        action="kubectl describe pod says for what; ask for as much as is used, or raise its priority.",
        source="Kubernetes node-pressure eviction; kubeflow/trainer#301",
        fires="Message:        The node was low on resource: memory.",
        spares="Evicted 12 entries from the cache",
        traits=Trait.ENDING,
    ),
    LogRule(
        code="UH7021",
        slug="step-not-started",
        family="environment",
        role="cause",
        anchors=(
            *("srun: error: Task launch", "srun: error: Unable to", "srun: error: task"),
            *("There are not enough slots available", "could not resolve at least one"),
            *("ImagePullBackOff", "ErrImagePull", "FailedScheduling", "FailedMount"),
        ),
        pattern=(
            r"srun: error: (?:Task launch for \S+ failed on node (?P<host>[\w.-]+)"
            r"|Unable to (?:create step|allocate resources|confirm allocation)|task \d+ launch failed)"
            r"|There are not enough slots available in the system"
            r"|could not resolve at least one hostname|\b(?:ImagePullBackOff|ErrImagePull"
            r"|FailedScheduling|FailedMount)\b"
        ),
        meaning="Part of the job was never started on its node.",
        action="Read the rest of that line: credentials, images, mounts or free slots of the node.",
        source="SLURM srun, Open MPI, Kubernetes events; trixie#58",
        fires="srun: error: Task launch for 36.0 failed on node cn131: Job credential expired",
        spares="srun: error: cn131: task 0: Exited with exit code 1",
        trust="B",
    ),
    LogRule(
        code="UH7047",
        slug="program-not-started",
        family="environment",
        role="cause",
        anchors=(
            *(": can't open file ", ": No module named ", "finding module specification for"),
            *("error while loading shared libraries: ", "execve(): ", "executable file not found"),
            "Could not load library ",
        ),
        pattern=(
            r"^\S*python[\d.]*: (?:can't open file (?P<file>\S+)|No module named (?P<module>\S+)"
            r"|Error while finding module specification for (?P<module2>\S+))"
            r"|error while loading shared libraries: (?P<library>\S+):"
            r"|slurmstepd: error: execve\(\): (?P<program>\S+): (?P<why>.+)"
            r"|exec: .{1,200}: executable file not found"
            r"|Could not load library (?P<library2>\S+)\. +Error: "
        ),
        meaning="A program of the job was not started, or not whole: a file, module or library is missing.",
        action="Look for it on that host, in its image and its environment (PATH, PYTHONPATH, venv).",
        source="CPython runpy, ld.so, SLURM, container runtimes, cuDNN; axolotl#1670",
        fires=(
            "/opt/venv/bin/python: Error while finding module specification for 'axolotl.cli.train' "
            "(ModuleNotFoundError: No module named 'axolotl')"
        ),
        spares="bash: module: command not found",
        trust="B",
    ),
    LogRule(
        code="UH7022",
        slug="rank-aborts-the-job",
        family="failure",
        role="cause",
        anchors=("MPI_ABORT was invoked on rank", "called MPI_Abort(", "Abort("),
        pattern=(
            r"MPI_ABORT was invoked on rank (?P<ranks>\d+)\b"
            r"|application called MPI_Abort\(.*\) - process (?P<ranks2>\d+)"
            r"|^Abort\(-?\d+\).*? on node \d+ \(rank (?P<ranks3>\d+) in comm"
        ),
        meaning="This rank ended the whole job itself, mostly after an error of its own.",
        action="Read what it printed before this line.",
        source="Open MPI, MPICH; hemelb#4, FedDrift#30",
        fires="MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD",
        spares="NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.",
        trust="B",
        blames="ranks",
        traits=Trait.ENDING,
    ),
    LogRule(
        code="UH7023",
        slug="another-rank-ended",
        family="failure",
        role="consequence",
        anchors=(
            *("Horovod has been shut down", "MPI communication peer process has unexpectedly"),
            *("but 1 process returned", "exited with non-zero status, thus causing"),
            *("Owner died", "its owner has died", "Received sigquit from a child"),
            "[status_update][",
        ),
        pattern=(
            r"Horovod has been shut down|MPI communication peer process has unexpectedly disconnected"
            r"|but \d+ process(?:es)? returned\b|exited with non-zero status, thus causing"
            r"|Received sigquit from a child|\[status_update\]\[\w+ to Failed\]"
        ),
        meaning="Another process ended first; this line only passes it on.",
        action="Find the first exception of any rank before it.",
        source="Horovod, Open MPI, SGLang, DLRover; horovod#410, horovod#1950, dlrover#1690",
        fires=(
            "OP_REQUIRES failed at mpi_ops.cc:422 : Aborted: Horovod has been shut down. This was "
            "caused by an exception on one of the ranks"
        ),
        spares="Horovod has been initialised",
        trust="B",
    ),
    LogRule(
        code="UH7024",
        slug="worker-died",
        family="failure",
        role="cause",
        anchors=(
            "died unexpectedly",
            "worker died (",
            "A worker died or was killed",
            "Termination is unexpected",
        ),
        pattern=(
            r"A worker died or was killed(?: while executing|$)"
            r"|Raylet is terminated\b.{0,120}\. Termination is unexpected|"
            r"Worker proc(?:ess)? (?:VllmWorker-(?P<ranks>\d{1,6})|\S+) died unexpectedly"
            r"|WorkerProc rank=\[(?P<ranks2>\d[\d, ]*)\] died unexpectedly"
            r"|ChildProcessError: worker died \((?P<exitcode>-?\d+)\)"
        ),
        meaning="A worker ended without a word: killed, or crashed; who waits for it ends too.",
        action="Look in its own log, and in dmesg of its host for 'Out of memory' and Xid.",
        source="vLLM multiproc_executor, Ray raylet; ART#201, vllm#53157, ray#47461, ray#29412",
        fires=(
            "ERROR 07-04 17:35:16 [multiproc_executor.py:140] Worker proc VllmWorker-1 died "
            "unexpectedly, shutting down executor."
        ),
        spares="The actor died unexpectedly before finishing this task.",
        trust="B",
        blames="ranks",
        traits=Trait.ENDING,
    ),
    LogRule(
        code="UH7025",
        slug="engine-ended",
        family="failure",
        role="consequence",
        anchors=(
            "EngineDeadError",
            "EngineCore encountered a fatal error",
            "EngineCore failed to start",
            *("scheduler is dead", "Engine core initialization failed"),
            *("WorkerProc initialization failed", "Got fatal signal from worker processes"),
        ),
        pattern=(
            r"EngineDeadError|EngineCore (?:encountered a fatal error|failed to start)"
            r"|Rank \d+ scheduler is dead|Engine core initialization failed"
            r"|WorkerProc initialization failed|Got fatal signal from worker processes"
        ),
        meaning="The serving engine ended because of something in one of its workers.",
        action="Read the first error of a worker before it.",
        source="vLLM v1 engine",
        fires="EngineCore encountered a fatal error.",
        spares="EngineCore started",
        trust="B",
    ),
    SERVING_STALLED,
    LogRule(
        code="UH7027",
        slug="workers-slow-to-answer",
        family="evidence",
        role="hint",
        anchors=("No available shared memory broadcast block found",),
        pattern=r"No available (?:shared memory broadcast )?block found in (?P<seconds>\d+) second",
        meaning="Some worker of the engine does not read its orders: it computes, compiles, or hangs.",
        action="Where it comes again and again, take the stacks of the workers.",
        source="vLLM shm_broadcast",
        fires=(
            "DEBUG 07-04 17:35:10 [shm_broadcast.py:456] No available shared memory broadcast block "
            "found in 60 second."
        ),
        spares="shared memory broadcast block found",
        harmless=True,
    ),
    LogRule(
        code="UH7070",
        slug="stuck-in-kernel",
        family="environment",
        role="cause",
        anchors=("stuck in uninterruptible sleep (D-state)", "abandoning and continuing teardown"),
        pattern=(
            r"Worker pid=(?P<pid>\d+) stuck in uninterruptible sleep \(D-state\) for (?P<seconds>[\d.]+)"
            r"|Process (?P<pid2>\d+) did not exit after .* abandoning and continuing teardown"
        ),
        meaning="A worker waits inside the kernel, for storage or a device, and cannot be ended.",
        action=(
            "On its host: cat /proc/PID/stack and dmesg tell for what; where it is a device, only a "
            "restart of the host helps."
        ),
        source="torch 2.13 local_elastic_agent.py, multiprocessing/api.py",
        fires=(
            "E1122 18:33:58.853 [default] Worker pid=4711 stuck in uninterruptible sleep (D-state) "
            "for 120.0s (>= 120.0s); marking worker group UNHEALTHY and disabling restarts."
        ),
        spares=(
            "W1122 [default] Worker pid=4711 entered uninterruptible sleep (D-state); will mark "
            "UNHEALTHY if it remains for 120.0s."
        ),
        trust="B",
        echoed=True,
    ),
    LogRule(
        code="UH7071",
        slug="exit-barrier-waits",
        family="evidence",
        role="observation",
        anchors=("Error waiting on exit barrier",),
        pattern=r"Error waiting on exit barrier\. Elapsed: (?P<seconds>[\d.]+)",
        meaning="The launcher of this node waited at the end for those of other nodes that did not come.",
        action="Look at the nodes that print no such line: their ranks still run, or failed.",
        source="torch elastic agent 2.0 to 2.13; nccl#1105",
        fires="ERROR:torch.distributed.elastic.agent.server.api:Error waiting on exit barrier. "
        "Elapsed: 300.2 seconds",
        spares="INFO Waiting 300 seconds for other agents to finish.",
        trust="B",
    ),
    LogRule(
        code="UH7072",
        slug="rendezvous-timeout",
        family="absent",
        role="observation",
        anchors=("RendezvousTimeoutError",),
        pattern=r"\bRendezvousTimeoutError\b",
        meaning="Not enough nodes came to the rendezvous in time.",
        action="Look at the nodes that did not come: not started, elsewhere, or cut off.",
        source="torch elastic dynamic_rendezvous.py; pytorch#80772, av_hubert#19",
        fires="torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
        spares="rendezvous timeout is 900 s",
        trust="B",
    ),
)
