"""Messages of ranks that were taken down, lost a peer or ended around a hang (UH713 to UH726)."""

from __future__ import annotations

from typing import Final

from unhang.kinds import Trait
from unhang.logs.rules.base import OF_THE_ABSENT, LogRule
from unhang.logs.rules.program import AGAIN

__all__ = ["CHILD_FAILED", "ELASTIC_BLAMES", "ENDED_BY_SIGNAL", "KILLED", "RULES"]

ELASTIC_BLAMES: Final = LogRule(
    code="UH723",
    slug="elastic-blames",
    family="failure",
    role="observation",
    anchors=("Root Cause (first observed failure)",),
    pattern=r"Root Cause \(first observed failure\):",
    meaning=(
        "torchelastic names the process that it saw die first, which is often a victim of "
        "somebody else's time-out."
    ),
    action="Order the real exceptions of all ranks by time instead.",
    source="torchelastic error summary",
    fires="Root Cause (first observed failure):",
    spares="Root cause analysis of the failure",
)

CHILD_FAILED: Final = LogRule(
    code="UH724",
    slug="child-failed",
    family="failure",
    role="observation",
    anchors=(") of binary: ", "Child process with PID", "exitcode  : ", "CalledProcessError: "),
    pattern=(
        r"CalledProcessError: Command .*?\b(?:python[\d.]*|torchrun|accelerate"
        r"|deepspeed|mpirun|horovodrun|srun)\b.*? (?:returned non-zero exit status "
        r"(?P<exitcode4>\d+)|died with <Signals\.(?P<signal>\w+))|"
        r"Child process with PID (?P<pid2>\d+) terminated with code (?P<exitcode2>-?\d+)"
        r"|^exitcode  : (?P<exitcode3>[1-9]\d*) +\(pid: (?P<pid3>\d+)\)|failed \(exitcode: (?P<exitcode>-?\d+)\) local_rank: (?P<local_rank>\d+) "
        r"\(pid: (?P<pid>\d+)\) of binary"
    ),
    meaning="A child of the launcher ended with that exit code.",
    action="Read that rank's own last lines.",
    source="torchelastic",
    fires=(
        "E1120 05:15:02.2 failed (exitcode: 1) local_rank: 1 (pid: 4711) of binary: "
        "/usr/bin/python3"
    ),
    spares="succeeded (exitcode: 0) of binary",
)

KILLED: Final = LogRule(
    code="UH720",
    slug="killed-from-outside",
    family="failure",
    role="cause",
    anchors=(
        *("ignal 9 (SIGKILL) received by PID", "exitcode: -9)", "exitcode  : -9 "),
        *("exits with return code = -9", "exited on signal 9", "xit code 137", "xit Code: 137"),
        *(
            "xit Code:  ",
            "xitCode: 137",
            "xit code: 137",
            "xit code is 137",
            "exited with code 137",
        ),
        *("exitcode: -9 ", "died with <Signals.SIGKILL", "Killed (signal 9)", "BY SIGNAL: 9 "),
        "terminated with signal SIGKILL",
        "unexpectedly exits with a connection error code",
    ),
    pattern=(
        r"died with <Signals\.SIGKILL|EXIT STRING: Killed \(signal 9\)|KILLED BY SIGNAL: 9 \(|"
        r"exits with return code = -9\b|process rank (?P<ranks>\d+) with PID (?P<pid4>\d+) on node "
        r"(?P<host>\S+) exited on signal 9\b|\b[Ee]xit(?:ed with)? ?[Cc]ode(?: is)?:? *137\b"
        r"|[Ss]ignal 9 \(SIGKILL\) received by PID (?P<pid>\d+)"
        r"|\brank ?(?P<rank>\d+) \(local[ _]rank ?: ?\d+\) ?exitcode ?: ?-9\b"
        r"|exitcode: -9\) local_rank: (?P<local_rank>\d+) \(pid: (?P<pid2>\d+)\)"
        r"|exitcode  : -9 \(pid: (?P<pid3>\d+)\)"
        r"|process (?P<spawned>\d{1,6}) terminated with signal SIGKILL"
        # Of one that crashes, Ray's own handler of signals prints "*** SIGSEGV received" as well.
        r"|Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection"
    ),
    meaning="The process was killed from outside: mostly the host's out-of-memory killer.",
    action="Look in dmesg of that host for 'Out of memory' and the PID.",
    source="torchelastic error summary",
    fires="  traceback : Signal 9 (SIGKILL) received by PID 4711",
    spares="  traceback : Signal 15 (SIGTERM) received by PID 4711",
    traits=Trait.ENDING,
    echoed=True,
    rank_writes=True,
)

ENDED_BY_SIGNAL: Final = LogRule(
    code="UH722",
    slug="ended-by-signal",
    family="failure",
    role="consequence",
    anchors=(
        *("(SIGABRT) received by PID", "(SIGTERM) received by PID", "closing signal SIG"),
        *("forcefully exiting via S", "death signal, shutting down workers"),
        *("Killing subprocess ", "terminated with signal SIG"),
        *("Fatal Python error: Aborted", "terminate called", "Signal: Aborted (6)"),
        *(
            "*** SIGABRT",
            "exited on signal 6 ",
            "Caught signal 6 (Aborted",
            "exits with return code = -6",
        ),
    ),
    pattern=(
        r"Unable to shutdown process (?P<pid3>\d+) via \S+, forcefully exiting via (?:Signals\.)?"
        r"SIGKILL|Received \S+ death signal, shutting down workers|"
        r"Signal \d+ \((?P<signal>SIGABRT|SIGTERM)\) received by PID (?P<pid>\d+)"
        r"|Sending process (?P<pid2>\d+) closing signal (?P<signal2>SIG\w*)"
        r"|(?:^|sigkill_handler\] )Killing subprocess (?P<pid4>\d+)$"
        r"|process (?P<spawned>\d{1,6}) terminated with signal SIG(?:ABRT|TERM)\b"
        r"|Fatal Python error: Aborted|^terminate called|Signal: Aborted \(6\)"
        r"|\*\*\* SIGABRT |Caught signal 6 \(Aborted|exits with return code = -6\b"
    ),
    meaning="Ended by a watchdog's abort or by the launcher cleaning up.",
    action="Look for the first failure before it: an abort says why in the lines above it.",
    source="torchelastic, DeepSpeed launch.py, torch.multiprocessing.spawn",
    fires="W1120 05:15:01.1 Sending process 4712 closing signal SIGTERM",
    spares="Signal 9 (SIGKILL) received by PID 4711",
)

RULES: tuple[LogRule, ...] = (
    LogRule(
        code="UH713",
        slug="taken-down",
        family="failure",
        role="consequence",
        anchors=("taking the entire process down", "Some NCCL operations have failed or timed out"),
        pattern=(
            r"Some NCCL operations have failed or timed out"
            r"|To avoid (?:data|this) inconsistency, we are taking the entire process down"
        ),
        meaning="The process ends itself after a time-out or an error in a collective.",
        action=f"Look for what came before it on any rank. Where nothing did: {AGAIN}",
        source="pytorch ProcessGroupNCCL",
        fires=(
            "Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA "
            "kernels, subsequent GPU operations might run on corrupted/incomplete data. To avoid "
            "data inconsistency, we are taking the entire process down."
        ),
        spares="taking the process group down",
    ),
    LogRule(
        code="UH714",
        slug="communicator-aborted",
        family="failure",
        role="consequence",
        anchors=(
            *("NCCL communicator was aborted on rank", "Future for ProcessGroup abort"),
            "NCCL communicator encountered error set by ProcessGroupNCCL",
        ),
        pattern=(
            r"NCCL communicator was aborted on rank \d+|Future for ProcessGroup abort timed"
            r" out|NCCL communicator encountered error set by ProcessGroupNCCL"
        ),
        meaning="The communicator was torn down after an earlier failure.",
        action="Look for the earlier failure.",
        source="pytorch ProcessGroupNCCL",
        fires=(
            "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 1. "
            "Original reason for failure was: watchdog time-out"
        ),
        spares="NCCL communicator was created on rank 1",
    ),
    LogRule(
        code="UH715",
        slug="remote-process-gone",
        family="failure",
        role="consequence",
        anchors=(
            "ncclRemoteError",
            "Connection reset by peer",
            "closed by remote peer",
            "Broken pipe",
        ),
        pattern=(
            r"ncclRemoteError: A call failed possibly due to a network error or a remote process "
            r"exiting prematurely|NCCL WARN .*(?:failed : (?:Connection reset by peer|Broken pipe)"
            r"|Connection closed by remote peer)|^(?:\w+\.)*RuntimeError: (?:Connection reset by peer"
            r"|Broken pipe)"
        ),
        meaning="The other side went away first, or the network between them did.",
        action="Find the rank whose error is the oldest.",
        source="NCCL user guide, error codes",
        fires=(
            "ncclRemoteError: A call failed possibly due to a network error or a remote process "
            "exiting prematurely."
        ),
        spares="ncclRemoteError is documented in the user guide",
    ),
    LogRule(
        code="UH716",
        slug="gloo-peer-gone",
        family="failure",
        role="consequence",
        anchors=(
            *("gloo/transport/tcp/pair.cc", "Remote peer closed the connection"),
            *("Socket unexpectedly closed", "reached monitoredBarrier, but received errors"),
        ),
        pattern=(
            r"(?:gloo/|Gloo).*(?:Remote peer closed the connection|Socket (?:unexpectedly )?closed)"
            r"|reached monitoredBarrier, but received errors|gloo/transport/tcp/pair\.cc.*?Connection "
            r"(?:closed|reset) by peer(?: \[(?P<peer>[^\]]+)\])?"
        ),
        meaning="A peer process died or closed its connections.",
        action="Find the first death among the peers.",
        source="gloo transport/tcp",
        fires=(
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed "
            "by peer [10.0.0.4]:34567"
        ),
        spares="[gloo/transport/tcp/pair.cc:100] connected",
    ),
    LogRule(
        code="UH717",
        slug="gloo-timeout",
        family="evidence",
        role="observation",
        anchors=(
            *("gloo/transport/tcp/unbound_buffer.cc", "Application timeout caused pair closure"),
            *("gloo/transport/tcp/pair.cc", "gloo/transport/tcp/socket.cc"),
            *("Error: Operation timed out!", "RPC ran for more than set timeout"),
            "RRef creation via rpc.remote() timed out",
        ),
        pattern=(
            r"RuntimeError: Operation timed out!|RPC ran for more than set timeout \((?P<rpc_ms>\d+) ms\)"
            r"|RRef creation via rpc\.remote\(\) timed out"
            r"|Application timeout caused pair closure|gloo/transport/.*(?:Connect|Read|Write) timeout \["
            r"|gloo/transport/tcp/unbound_buffer\.cc.*?Timed out waiting (?P<timeout_ms>\d+)ms for "
            r"(?P<direction>recv|send) operation"
        ),
        meaning="This rank waited for a peer's data until its time-out.",
        action="The ranks that print nothing are the ones to look at.",
        source="gloo transport/tcp",
        fires=(
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out "
            "waiting 1800000ms for recv operation to complete"
        ),
        spares="[gloo/transport/tcp/unbound_buffer.cc:78] recv complete",
        waits=(("", "data of a peer"),),
    ),
    LogRule(
        code="UH718",
        slug="barrier-missing-ranks",
        family="absent",
        role="cause",
        anchors=("failed to pass monitoredBarrier in",),
        pattern=(
            r"Ranks? (?P<ranks>\d+(?:, ?\d+)*) failed to pass monitoredBarrier in (?P<ms>\d+) ms"
        ),
        meaning="These ranks did not come to the monitored barrier.",
        action="Look at the stacks and the last log lines of these ranks.",
        source="torch.distributed.monitored_barrier",
        fires="[Rank 0]: Ranks 2 failed to pass monitoredBarrier in 4000 ms",
        spares="Rank 1 successfully reached monitoredBarrier, but received errors",
        blames="ranks",
        traits=OF_THE_ABSENT,
    ),
    LogRule(
        code="UH719",
        slug="collective-fingerprints-differ",
        family="disagreement",
        role="cause",
        anchors=("Detected mismatch between collectives on ranks",),
        pattern=(
            r"Detected mismatch between collectives on ranks\. Rank (?P<rank>\d+) is running "
            r"(?:inconsistent )?collective: CollectiveFingerPrint\((?:SequenceNumber=(?P<seq>\d+)(?:, )?)?"
            r"(?:OpType=(?P<op>\w+)|$)(?:.*?but Rank (?P<other>\d+) is running collective: "
            r"CollectiveFingerPrint\((?:SequenceNumber=\d+(?:, )?)?OpType=(?P<other_op>\w+))?"
        ),
        meaning="Two ranks made different calls; which of them is wrong this line does not tell.",
        action="Compare the two code paths; diagnose the dumps for the majority and the call site.",
        source="torch ProcessGroupWrapper (TORCH_DISTRIBUTED_DEBUG=DETAIL)",
        fires=(
            "RuntimeError: Detected mismatch between collectives on ranks. Rank 2 is running "
            "collective: CollectiveFingerPrint(SequenceNumber=1, OpType=ALLREDUCE, TensorShape=[4],"
            " TensorDtypes=Float), but Rank 1 is running collective: "
            "CollectiveFingerPrint(SequenceNumber=1, OpType=BROADCAST, TensorShape=[4])."
        ),
        spares="No mismatch between collectives on ranks",
        blames="nobody",
    ),
    KILLED,
    LogRule(
        code="UH7073",
        slug="terminal-closed",
        family="environment",
        role="cause",
        anchors=("death signal, shutting down workers", "SignalException: Process "),
        pattern=(
            r"Received (?:1|Signals\.SIGHUP) death signal, shutting down workers"
            r"|SignalException: Process \d+ got signal: (?:1|Signals\.SIGHUP)$"
        ),
        meaning="The terminal closed (SIGHUP), and torchrun ends its workers then, under nohup too.",
        action="Start it in tmux or screen, with setsid, or as a batch job: nohup does not help.",
        source="torchelastic, pytorch#76894; mmrotate#210, ms-swift#5884",
        fires=(
            "W0920 09:10:41.194000 84933 torch/distributed/elastic/agent/server/api.py:719] Received 1 "
            "death signal, shutting down workers"
        ),
        spares=(
            "WARNING:torch.distributed.elastic.agent.server.api:Received 15 death signal, shutting "
            "down workers"
        ),
        blames="nobody",
    ),
    LogRule(
        code="UH721",
        slug="crashed-by-signal",
        family="failure",
        role="cause",
        anchors=(
            *("(SIGSEGV) received by PID", "(SIGBUS) received by PID", "(SIGILL) received by"),
            *("(SIGFPE) received by PID", "*** SIG"),
            "unexpectedly failed with an exit code",
            *("died with <Signals.SIGSEGV", "died with <Signals.SIGBUS"),
            *("died with <Signals.SIGILL", "died with <Signals.SIGFPE"),
            *(f"exitcode: -{number})" for number in (4, 7, 8, 11)),
            *(f"exitcode  : -{number} " for number in (4, 7, 8, 11)),
            *(f"exits with return code = -{number}" for number in (4, 7, 8, 11)),
            *(f"terminated with signal SIG{name}" for name in ("SEGV", "BUS", "ILL", "FPE")),
        ),
        pattern=(
            r"Signal \d+ \((?P<signal>SIGSEGV|SIGBUS|SIGILL|SIGFPE)\) received by PID (?P<pid>\d+)"
            r"|died with <Signals\.SIG(?:SEGV|BUS|ILL|FPE)"
            r"|exits with return code = -(?:4|7|8|11)\b|\*\*\* (?P<signal2>SIG(?:SEGV|BUS|ILL|FPE)) .*"
            r"received by PID (?P<pid5>\d+)|unexpectedly failed with an exit code (?:4|7|8|11)\b"
            r"|exitcode: -(?:4|7|8|11)\) local_rank: (?P<local_rank>\d+) \(pid: (?P<pid2>\d+)\)"
            r"|exitcode  : -(?:4|7|8|11) +\(pid: (?P<pid3>\d+)\)"
            r"|process (?P<spawned>\d{1,6}) terminated with signal SIG(?:SEGV|BUS|ILL|FPE)\b"
        ),
        meaning="The process crashed in native code.",
        action="Open its core file with unhang core; unhang doctor env says how to get cores.",
        source="torchelastic error summary",
        fires="  traceback : Signal 11 (SIGSEGV) received by PID 4711",
        spares="  traceback : Signal 6 (SIGABRT) received by PID 4711",
        traits=Trait.ENDING,
    ),
    ENDED_BY_SIGNAL,
    ELASTIC_BLAMES,
    CHILD_FAILED,
    LogRule(
        code="UH725",
        slug="watchdog-thread-died",
        family="failure",
        role="observation",
        anchors=("watchdog thread terminated with exception",),
        pattern=r"watchdog thread terminated with exception: (?P<what>.{1,200})",
        meaning="The watchdog met this error: often a CUDA error raised first somewhere else.",
        action="Find the first rank with this error and read what it says after the colon.",
        source="pytorch ProcessGroupNCCL",
        fires=(
            "[PG ID 0 PG GUID 0 Rank 3] Process group watchdog thread terminated with exception: "
            "CUDA error: an illegal memory access was encountered"
        ),
        spares="watchdog thread terminated normally",
        trust="B",
    ),
    LogRule(
        code="UH726",
        slug="store-connection-lost",
        family="failure",
        role="consequence",
        anchors=("failed on SocketImpl", 'ailed to check the "should dump" flag'),
        pattern=r"\w+ failed on SocketImpl|[Ff]ailed to check the \"should dump\" flag on TCPStore",
        meaning="The process that hosts the TCPStore (rank 0 or the launcher) has ended.",
        action="Look at why rank 0 or its node ended before.",
        source="pytorch TCPStore",
        fires=(
            "[c10d] recvValue failed on SocketImpl(fd=5, addr=[node01]:47152, "
            "remote=[node01]:29500): Connection reset by peer"
        ),
        spares="[c10d] TCPStore connected to node01:29500",
        trust="B",
        harmless=True,
    ),
)
