"""Messages of torch's watchdogs, recorders and launchers around a hang (UH701 to UH726)."""

from __future__ import annotations

from unhang.logs.rules.base import Rule

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = (
    Rule(
        code="UH701",
        slug="collective-timeout",
        kind="observation",
        anchors=("Watchdog caught collective operation timeout",),
        pattern=(
            r"Watchdog caught collective operation timeout: WorkNCCL\((?:SeqNum=(?P<seq>\d+), )?"
            r"OpType=(?P<op>\w+)(?:, NumelIn=(?P<numel_in>\d+), NumelOut=(?P<numel_out>\d+))?"
            r"(?:, Timeout\(ms\)=(?P<timeout_ms>\d+))?"
        ),
        meaning="This rank waited in a collective until its time-out.",
        action="Compare sequence number, op and sizes over all ranks; diagnose the dumps if any.",
        source="pytorch ProcessGroupNCCL; ezpz#239, pytorch#77562, accelerate#3250",
        fires=(
            "[rank3]:[E1120 05:06:30.11 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught "
            "collective operation timeout: WorkNCCL(SeqNum=122, OpType=_REDUCE_SCATTER_BASE, "
            "NumelIn=4096, NumelOut=512, Timeout(ms)=600000) ran for 600012 milliseconds before "
            "timing out."
        ),
        spares="Watchdog started with a collective operation timeout of 600000 ms",
    ),
    Rule(
        code="UH702",
        slug="watchdog-counters",
        kind="observation",
        anchors=("failure detected by watchdog at work sequence id",),
        pattern=(
            r"(?:PG GUID (?P<pg>[^ (]*)\((?P<desc>[^)]*)\) Rank (?P<rank>\d+).*)?"
            r"failure detected by watchdog at work sequence id: (?P<seq>-?\d+) "
            r"PG status: last enqueued work: (?P<enqueued>-?\d+), "
            r"last completed work: (?P<completed>-?\d+)"
        ),
        meaning="How far this rank had enqueued and completed when its watchdog gave up.",
        action="The difference is pipeline depth, not damage: compare the counters of all ranks.",
        source="pytorch#139659",
        fires=(
            "[PG ID 0 PG GUID 0(default_pg) Rank 0]  failure detected by watchdog at work sequence "
            "id: 5 PG status: last enqueued work: 5, last completed work: 4"
        ),
        spares="PG status: last enqueued work: 5, last completed work: 4",
    ),
    Rule(
        code="UH703",
        slug="dump-signal-counters",
        kind="observation",
        anchors=("Received a dump signal due to a collective timeout",),
        pattern=(
            r"(?:PG GUID (?P<pg>[^ (]*)\((?P<desc>[^)]*)\) Rank (?P<rank>\d+)\] *)?"
            r"Received a dump signal due to a collective timeout from\s+"
            r"(?:rank (?P<origin>\d+)|this local rank)"
            r".*?Last enqueued NCCL work: (?P<enqueued>-?\d+), "
            r"last completed NCCL work: (?P<completed>-?\d+)"
        ),
        meaning=(
            "The counters of this rank when another rank timed out. The rank with the smallest "
            "'last enqueued' did not come, or is stuck inside the library's call."
        ),
        action="Look at the stack of the rank whose 'last enqueued' is below its peers'.",
        source="pytorch ProcessGroupNCCL heartbeat monitor",
        fires=(
            "[PG ID 0 PG GUID 0(default_pg) Rank 1] Received a dump signal due to a collective "
            "timeout from  rank 3 and we will try our best to dump the debug info. Last enqueued "
            "NCCL work: 4, last completed NCCL work: 4."
        ),
        spares="Received a dump signal from pipe and we will try our best to dump the debug info.",
    ),
    Rule(
        code="UH704",
        slug="dump-signal-observed",
        kind="observation",
        anchors=("Observed flight recorder dump signal from another rank",),
        pattern=r"Observed flight recorder dump signal from another rank via TCPStore",
        meaning="This rank did not time out itself: it was told to dump by another one.",
        action="Keep it among the suspects until its counters are known.",
        source="OpenRLHF#1126",
        fires="[Rank 5] Observed flight recorder dump signal from another rank via TCPStore.",
        spares="[Rank 5] flight recorder dump finished",
        trust="B",
    ),
    Rule(
        code="UH705",
        slug="watchdog-stuck",
        kind="consequence",
        anchors=("watchdog got stuck for",),
        pattern=r"watchdog got stuck for (?P<seconds>\d+) ?seconds",
        meaning=(
            "The watchdog thread itself did not move (CUDA call or GIL). It often comes exactly "
            "this long after the real time-out."
        ),
        action="Look for the time-out that many seconds earlier in the log.",
        source="ArcticTraining#219; NVIDIA/Fuser#3055",
        fires=(
            "[Rank 0] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making "
            "progress in monitoring enqueued collectives."
        ),
        spares="ProcessGroupNCCL's watchdog made progress after 480 seconds",
        trust="B",
    ),
    Rule(
        code="UH706",
        slug="heartbeat-abort",
        kind="consequence",
        anchors=("due to ProcessGroupNCCL watchdog hang",),
        pattern=r"Terminating the process after attempting to dump debug info, due to "
        r"ProcessGroupNCCL watchdog hang",
        meaning="The heartbeat monitor ended the process: an effect of an earlier stop.",
        action="Look for what stopped before.",
        source="pytorch ProcessGroupNCCL heartbeat monitor",
        fires=(
            "[Rank 2] Terminating the process after attempting to dump debug info, due to "
            "ProcessGroupNCCL watchdog hang."
        ),
        spares="Terminating the process after the last step",
    ),
    Rule(
        code="UH707",
        slug="gil-hint",
        kind="hint",
        anchors=("Could not acquire GIL within",),
        pattern=r"Could not acquire GIL within (?P<ms>\d+) ms on exit, possible GIL induced hang",
        meaning="Something held the GIL when this rank ended; innocent waiters print it as well.",
        action="Take the stacks of all ranks with unhang stacks --native and see who holds it.",
        source="pytorch ProcessGroupNCCL GIL checker",
        fires="Could not acquire GIL within 300 ms on exit, possible GIL induced hang",
        spares="Could not acquire lock within 300 ms",
        trust="C",
    ),
    Rule(
        code="UH708",
        slug="recorder-off",
        kind="hint",
        anchors=("Stack trace of the failed collective not found",),
        pattern=r"Stack trace of the failed collective not found, potentially because "
        r"FlightRecorder is disabled",
        meaning="The recorder was off, so there is no dump to read.",
        action="Start under unhang run, or set TORCH_FR_BUFFER_SIZE=2000 for the next time.",
        source="pytorch ProcessGroupNCCL",
        fires=(
            "Stack trace of the failed collective not found, potentially because FlightRecorder "
            "is disabled. You can enable it by setting TORCH_NCCL_TRACE_BUFFER_SIZE to a non-zero "
            "value."
        ),
        spares="Stack trace of the failed collective: all_reduce",
    ),
    Rule(
        code="UH709",
        slug="dump-not-finished",
        kind="hint",
        anchors=("flight recorder dumps to finish",),
        pattern=r"timed out after waiting for (?P<ms>\d+) ?ms flight recorder dumps to finish",
        meaning="The dump of this rank was not written; symbolising stacks may need the GIL.",
        action="Set TORCH_INCLUDE_STACK_TRACE=0 so that the dump does not wait for the GIL.",
        source="LlamaFactory#8261; pytorch#167023",
        fires=("[Rank 4] timed out after waiting for 60000ms flight recorder dumps to finish."),
        spares="waiting for flight recorder dumps to finish",
        trust="B",
    ),
    Rule(
        code="UH710",
        slug="desync-never-joined",
        kind="cause",
        anchors=("are the lagging ranks that caused this timeout",),
        pattern=r"ranks \[(?P<ranks>[\d, ]+)\] are the lagging ranks that caused this timeout",
        meaning="torch's desync report: these ranks never joined any collective of this group.",
        action="Look at the stacks and the last log lines of these ranks.",
        source="pytorch TraceUtils.h",
        fires=(
            "To our best knowledge, ranks [3, 7] are the lagging ranks that caused this timeout. "
            "They never joined any collectives"
        ),
        spares="ranks [3, 7] passed the barrier",
        trust="B",
    ),
    Rule(
        code="UH711",
        slug="desync-joined-not-finished",
        kind="observation",
        anchors=("joined but didn't finish collective #",),
        pattern=r"\[(?P<ranks>[\d, ]+)\] joined but didn't finish collective #(?P<seq>\d+)",
        meaning="torch's desync report: these ranks stand in that collective.",
        action="The ranks that are not in this list are the ones to look at.",
        source="pytorch TraceUtils.h",
        fires="  - [0, 1, 2] joined but didn't finish collective #44 (count from 1)",
        spares="  - [0, 1, 2] joined the group",
        trust="B",
    ),
    Rule(
        code="UH712",
        slug="desync-not-joined",
        kind="observation",
        anchors=("didn't join collective #",),
        pattern=(
            r"\[(?P<ranks>[\d, ]+)\] finished collective #(?P<done>\d+), "
            r"but didn't join collective #(?P<seq>\d+)"
        ),
        meaning="torch's desync report: absent from that collective, or stuck inside its call.",
        action="Take the native stack of these ranks: absent and stuck inside look alike here.",
        source="pytorch TraceUtils.h",
        fires="  - [3] finished collective #43, but didn't join collective #44 (count from 1)",
        spares="  - [3] finished collective #43",
        trust="B",
    ),
    Rule(
        code="UH713",
        slug="taken-down",
        kind="consequence",
        anchors=("taking the entire process down",),
        pattern=r"To avoid data inconsistency, we are taking the entire process down",
        meaning="The process ends itself after a time-out or an error in a collective.",
        action="Look for what came before it on any rank.",
        source="pytorch ProcessGroupNCCL",
        fires=(
            "Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA "
            "kernels, subsequent GPU operations might run on corrupted/incomplete data. To avoid "
            "data inconsistency, we are taking the entire process down."
        ),
        spares="taking the process group down",
    ),
    Rule(
        code="UH714",
        slug="communicator-aborted",
        kind="consequence",
        anchors=("NCCL communicator was aborted on rank",),
        pattern=r"NCCL communicator was aborted on rank (?P<rank>\d+)",
        meaning="The communicator was torn down after an earlier failure.",
        action="Look for the earlier failure.",
        source="pytorch ProcessGroupNCCL",
        fires=(
            "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 1. "
            "Original reason for failure was: watchdog time-out"
        ),
        spares="NCCL communicator was created on rank 1",
    ),
    Rule(
        code="UH715",
        slug="remote-process-gone",
        kind="consequence",
        anchors=("ncclRemoteError",),
        pattern=r"ncclRemoteError: A call failed possibly due to a network error or a remote "
        r"process exiting prematurely",
        meaning="The other side went away first, or the network between them did.",
        action="Find the rank whose error is the oldest.",
        source="NCCL user guide, error codes",
        fires=(
            "ncclRemoteError: A call failed possibly due to a network error or a remote process "
            "exiting prematurely."
        ),
        spares="ncclRemoteError is documented in the user guide",
    ),
    Rule(
        code="UH716",
        slug="gloo-peer-gone",
        kind="consequence",
        anchors=("gloo/transport/tcp/pair.cc",),
        pattern=r"gloo/transport/tcp/pair\.cc.*?Connection (?:closed|reset) by peer(?: "
        r"\[(?P<peer>[^\]]+)\])?",
        meaning="A peer process died or closed its connections.",
        action="Find the first death among the peers.",
        source="gloo transport/tcp",
        fires=(
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed "
            "by peer [10.0.0.4]:34567"
        ),
        spares="[gloo/transport/tcp/pair.cc:100] connected",
    ),
    Rule(
        code="UH717",
        slug="gloo-timeout",
        kind="observation",
        anchors=("gloo/transport/tcp/unbound_buffer.cc",),
        pattern=(
            r"gloo/transport/tcp/unbound_buffer\.cc.*?Timed out waiting (?P<timeout_ms>\d+)ms for "
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
    ),
    Rule(
        code="UH718",
        slug="barrier-missing-ranks",
        kind="cause",
        anchors=("failed to pass monitoredBarrier in",),
        pattern=(
            r"Ranks? (?P<ranks>\d+(?:, ?\d+)*) failed to pass monitoredBarrier in (?P<ms>\d+) ms"
        ),
        meaning="These ranks did not come to the monitored barrier.",
        action="Look at the stacks and the last log lines of these ranks.",
        source="torch.distributed.monitored_barrier",
        fires="[Rank 0]: Ranks 2 failed to pass monitoredBarrier in 4000 ms",
        spares="Rank 1 successfully reached monitoredBarrier, but received errors",
    ),
    Rule(
        code="UH719",
        slug="collective-fingerprints-differ",
        kind="cause",
        anchors=("Detected mismatch between collectives on ranks",),
        pattern=(
            r"Detected mismatch between collectives on ranks\. Rank (?P<rank>\d+) is running "
            r"collective: CollectiveFingerPrint\((?:SequenceNumber=(?P<seq>\d+), )?"
            r"OpType=(?P<op>\w+).*?but Rank (?P<other>\d+) is running collective: "
            r"CollectiveFingerPrint\((?:SequenceNumber=\d+, )?OpType=(?P<other_op>\w+)"
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
    ),
    Rule(
        code="UH720",
        slug="killed-from-outside",
        kind="cause",
        anchors=("Signal 9 (SIGKILL) received by PID", "exitcode: -9)", "exitcode  : -9 "),
        pattern=(
            r"Signal 9 \(SIGKILL\) received by PID (?P<pid>\d+)"
            r"|exitcode: -9\) local_rank: (?P<local_rank>\d+) \(pid: (?P<pid2>\d+)\)"
            r"|exitcode  : -9 \(pid: (?P<pid3>\d+)\)"
        ),
        meaning="The process was killed from outside: mostly the host's out-of-memory killer.",
        action="Look in dmesg of that host for 'Out of memory' and the PID.",
        source="torchelastic error summary",
        fires="  traceback : Signal 9 (SIGKILL) received by PID 4711",
        spares="  traceback : Signal 15 (SIGTERM) received by PID 4711",
    ),
    Rule(
        code="UH721",
        slug="crashed-by-signal",
        kind="cause",
        anchors=("(SIGSEGV) received by PID", "(SIGBUS) received by PID", "(SIGILL) received by"),
        pattern=r"Signal \d+ \((?P<signal>SIGSEGV|SIGBUS|SIGILL)\) received by PID (?P<pid>\d+)",
        meaning="The process crashed in native code.",
        action="Open its core file with unhang core; unhang doctor env says how to get cores.",
        source="torchelastic error summary",
        fires="  traceback : Signal 11 (SIGSEGV) received by PID 4711",
        spares="  traceback : Signal 6 (SIGABRT) received by PID 4711",
    ),
    Rule(
        code="UH722",
        slug="ended-by-signal",
        kind="consequence",
        anchors=("(SIGABRT) received by PID", "(SIGTERM) received by PID", "closing signal SIG"),
        pattern=(
            r"Signal \d+ \((?P<signal>SIGABRT|SIGTERM)\) received by PID (?P<pid>\d+)"
            r"|Sending process (?P<pid2>\d+) closing signal (?P<signal2>SIG\w+)"
        ),
        meaning="Ended by a watchdog's abort or by the launcher cleaning up.",
        action="Look for the first failure before it.",
        source="torchelastic",
        fires="W1120 05:15:01.1 Sending process 4712 closing signal SIGTERM",
        spares="Signal 9 (SIGKILL) received by PID 4711",
    ),
    Rule(
        code="UH723",
        slug="elastic-blames",
        kind="observation",
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
    ),
    Rule(
        code="UH724",
        slug="child-failed",
        kind="observation",
        anchors=(") of binary: ",),
        pattern=(
            r"failed \(exitcode: (?P<exitcode>-?\d+)\) local_rank: (?P<local_rank>\d+) "
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
    ),
    Rule(
        code="UH725",
        slug="watchdog-thread-died",
        kind="observation",
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
    Rule(
        code="UH726",
        slug="store-connection-lost",
        kind="consequence",
        anchors=("recvValue failed on SocketImpl", 'failed to check the "should dump" flag'),
        pattern=r"recvValue failed on SocketImpl|failed to check the \"should dump\" flag on TCPStore",
        meaning="The process that hosts the TCPStore (rank 0 or the launcher) has ended.",
        action="Look at why rank 0 or its node ended before.",
        source="pytorch TCPStore",
        fires=(
            "[c10d] recvValue failed on SocketImpl(fd=5, addr=[node01]:47152, "
            "remote=[node01]:29500): Connection reset by peer"
        ),
        spares="[c10d] TCPStore connected to node01:29500",
        trust="B",
    ),
)
