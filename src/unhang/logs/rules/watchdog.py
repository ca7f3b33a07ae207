"""Messages of torch's watchdogs, recorders and checks about a hang itself."""

from __future__ import annotations

from unhang.kinds import Trait
from unhang.logs.rules.base import OF_THE_ABSENT, LogRule

__all__ = ["RULES"]

# Within another group than the default one, ranks have numbers of their own.
_OF_GROUP = (
    r"PG GUID (?:(?P<pg>0|default_pg)(?:\((?P<desc>default_pg)\))? Rank (?P<rank>\d+)"
    r"|(?P<pg2>[^ (]*)(?:\((?P<desc2>[^)]*)\))? Rank \d+)"
)

RULES: tuple[LogRule, ...] = (
    LogRule(
        code="UH701",
        slug="collective-timeout",
        family="evidence",
        role="observation",
        anchors=(
            *("aught collective operation timeout", "Stream synchronize timeout"),
            *(") timed out in call to wait", ") timed out in blocking wait"),
            "] Operation timed out after ",
        ),
        pattern=(
            r"EE\d{4}\b.*Stream synchronize timeout|"
            r"\[TC\]\[rank=\d{1,6}\]\[name=(?P<pg>[^\]]*)\] Operation timed out after (?P<ms>\d+) ms|"
            r"(?:(?:Watchdog c|C)aught collective operation timeout:|Work(?=.*\) timed out in ))"
            r" WorkNCCL\((?:SeqNum=(?P<seq>\d+), )?OpType=(?P<op>\w+)"
            r"(?:, TensorShape=\[[^\]]*\])?"
            r"(?:, NumelIn=(?P<numel_in>\d+), NumelOut=(?P<numel_out>\d+))?"
            r"(?:, Timeout\(ms\)=(?P<timeout_ms>\d+))?"
        ),
        meaning="This rank waited in a collective until its time-out.",
        action="Compare sequence number, op and sizes over all ranks; diagnose the dumps if any.",
        source="pytorch ProcessGroupNCCL, WorkNCCL 2.15; ezpz#239, pytorch#77562, accelerate#3250",
        fires=(
            "[rank3]:[E1120 05:06:30.11 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught "
            "collective operation timeout: WorkNCCL(SeqNum=122, OpType=_REDUCE_SCATTER_BASE, "
            "NumelIn=4096, NumelOut=512, Timeout(ms)=600000) ran for 600012 milliseconds before "
            "timing out."
        ),
        spares="Watchdog started with a collective operation timeout of 600000 ms",
        traits=Trait.COUNTERS,
        waits=(("", "the other ranks of a collective"),),
    ),
    LogRule(
        code="UH702",
        slug="watchdog-counters",
        family="evidence",
        role="observation",
        anchors=(
            *("failure detected by watchdog at work sequence id", "Timeout at NCCL work: "),
            "detected by watchdog at work: ",
        ),
        pattern=(
            rf"(?:{_OF_GROUP}.*)?"
            r"(?:failure detected by watchdog at work sequence id|Timeout at NCCL work"
            r"|detected by watchdog at work): (?P<seq>-?\d+)"
            r"(?: PG status:|,) last enqueued (?:NCCL )?work: (?P<enqueued>-?\d+), "
            r"last completed (?:NCCL )?work: (?P<completed>-?\d+)"
        ),
        meaning="How far this rank had enqueued and completed when its watchdog gave up.",
        action="The difference is pipeline depth, not damage: compare the counters of all ranks.",
        source="pytorch#139659",
        fires=(
            "[PG ID 0 PG GUID 0(default_pg) Rank 0]  failure detected by watchdog at work sequence "
            "id: 5 PG status: last enqueued work: 5, last completed work: 4"
        ),
        spares="PG status: last enqueued work: 5, last completed work: 4",
        traits=Trait.COUNTERS,
        rank_writes=True,
    ),
    LogRule(
        code="UH703",
        slug="dump-signal-counters",
        family="evidence",
        role="observation",
        anchors=("Received a dump signal ", "Received a timeout signal ", "Received a global "),
        pattern=(
            rf"(?:{_OF_GROUP}\] *)?"
            r"Received a (?:global )?(?:dump signal|timeout(?: signal)?)"
            r"(?: due to a collective timeout)? from\s+"
            r"(?:rank (?P<origin>\d+)|this local rank|another rank)"
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
        traits=Trait.COUNTERS,
    ),
    LogRule(
        code="UH704",
        slug="dump-signal-observed",
        family="evidence",
        role="observation",
        anchors=(
            *(
                "Observed flight recorder dump signal from another rank",
                "Received a global timeout",
            ),
            "remote error detected from rank: ",
        ),
        pattern=(
            r"Observed flight recorder dump signal from another rank via TCPStore"
            r"|Received a global timeout from another rank(?!.*Last enqueued)"
            r"|remote error detected from rank: (?P<origin>\d+)"
        ),
        meaning="This rank did not time out itself: it was told to dump by another one.",
        action="Keep it among the suspects until its counters are known.",
        source="OpenRLHF#1126",
        fires="[Rank 5] Observed flight recorder dump signal from another rank via TCPStore.",
        spares="[Rank 5] flight recorder dump finished",
        trust="B",
    ),
    LogRule(
        code="UH705",
        slug="watchdog-stuck",
        family="program",
        role="consequence",
        anchors=(
            "watchdog got stuck for",
            "Heartbeat monitor timed out",
            "no heartbeat of its watchdog",
        ),
        pattern=(
            r"watchdog got stuck for (?P<seconds>\d+) ?seconds|Heartbeat monitor timed out"
            r"|no heartbeat of its watchdog"
        ),
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
    LogRule(
        code="UH706",
        slug="heartbeat-abort",
        family="failure",
        role="consequence",
        anchors=(
            *("due to ProcessGroupNCCL watchdog hang", "due to collective timeout or exception"),
            *(
                "ProcessGroupNCCL's watchdog detected ",
                "Monitor Thread is disabled, but would have",
            ),
            *("Aborting process on rank ", "for health check and flight recorder dump before"),
        ),
        pattern=(
            r"(?:Terminating the process ?|would have terminated the process ?)after attempting to "
            r"dump debug info, due to (?:ProcessGroupNCCL watchdog hang|collective timeout)"
            r"|ProcessGroupNCCL's watchdog detected (?:a (?:collective timeout|dump signal)"
            r"|an exception)|Monitor Thread is disabled, but would have killed this job"
            r"|Aborting process on rank \d+ due to (?:timeout|error) - |Waiting \d+ms for health check and "
            r"flight recorder dump before aborting"
        ),
        meaning="The watchdog or its monitor ended the process: an effect of an earlier stop.",
        action="Look for what stopped before.",
        source="pytorch ProcessGroupNCCL heartbeat monitor, ProcessGroupNCCL2 2.15",
        fires=(
            "[Rank 2] Terminating the process after attempting to dump debug info, due to "
            "ProcessGroupNCCL watchdog hang."
        ),
        spares="Terminating the process after the last step",
    ),
    LogRule(
        code="UH707",
        slug="gil-hint",
        family="program",
        role="hint",
        anchors=("Could not acquire GIL within",),
        pattern=r"Could not acquire GIL within (?P<ms>\d+) ms on exit, possible GIL induced hang",
        meaning="Something held the GIL when this rank ended; innocent waiters print it as well.",
        action="Take the stacks of all ranks with unhang stacks --native and see who holds it.",
        source="pytorch ProcessGroupNCCL GIL checker",
        fires="Could not acquire GIL within 300 ms on exit, possible GIL induced hang",
        spares="Could not acquire lock within 300 ms",
        trust="C",
    ),
    LogRule(
        code="UH708",
        slug="recorder-off",
        family="evidence",
        role="hint",
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
    LogRule(
        code="UH709",
        slug="dump-not-finished",
        family="evidence",
        role="hint",
        anchors=(
            *("flight recorder dumps to finish", "Flight Recorder debug info", "NCCLPG debug info"),
            "Future for Flight recorder dump",
        ),
        pattern=(
            r"timed out after waiting for (?P<ms>\d+) ?ms flight recorder dumps to finish"
            r"|Error (?:opening file for )?(?:writing|flushing) (?:Flight Recorder|NCCLPG) debug info"
            r"|Future for Flight recorder dump.* timed out"
        ),
        meaning="The dump of this rank was not written; symbolising stacks may need the GIL.",
        action="Set TORCH_INCLUDE_STACK_TRACE=0 so that the dump does not wait for the GIL.",
        source="LlamaFactory#8261; pytorch#167023",
        fires=("[Rank 4] timed out after waiting for 60000ms flight recorder dumps to finish."),
        spares="waiting for flight recorder dumps to finish",
        trust="B",
    ),
    LogRule(
        code="UH710",
        slug="desync-never-joined",
        family="absent",
        role="cause",
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
        blames="ranks",
        traits=OF_THE_ABSENT,
    ),
    LogRule(
        code="UH711",
        slug="desync-joined-not-finished",
        family="absent",
        role="observation",
        anchors=("joined but didn't finish collective #",),
        pattern=r"\[(?P<ranks>[\d, ]+)\] joined but didn't finish collective #(?P<seq>\d+)",
        meaning="torch's desync report: these ranks stand in that collective.",
        action="The ranks that are not in this list are the ones to look at.",
        source="pytorch TraceUtils.h",
        fires="  - [0, 1, 2] joined but didn't finish collective #44 (count from 1)",
        spares="  - [0, 1, 2] joined the group",
        trust="B",
    ),
    LogRule(
        code="UH712",
        slug="desync-not-joined",
        family="absent",
        role="cause",
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
        blames="ranks",
        traits=OF_THE_ABSENT,
    ),
    LogRule(
        code="UH7067",
        slug="recorder-writes",
        family="evidence",
        role="consequence",
        anchors=(
            *("preparing to dump debug info", "First PG on this rank", "to set the dump signal"),
            *("Broadcasting flight-recorder dump signal", "Stack trace of the failed collective: "),
            "FlightRecorderHook: dumping trace on collective failure",
        ),
        pattern=(
            r"FlightRecorderHook: dumping trace on |ProcessGroupNCCL preparing to dump debug info|First PG on this rank (?:to signal dumping"
            r"|detecting the dump signal)|First watchdog to set the dump signal"
            r"|Broadcasting flight-recorder dump signal|Stack trace of the failed collective: "
        ),
        meaning="The recorder of this rank begins to write its dump, after a time-out.",
        action="Diagnose the dumps: unhang diagnose with the folder of TORCH_FR_DUMP_TEMP_FILE.",
        source="pytorch ProcessGroupNCCL 2.4, 2.7",
        fires="[PG ID 0 PG GUID 0(default_pg) Rank 1] ProcessGroupNCCL preparing to dump debug info. "
        "Include stack trace: 1",
        spares="ProcessGroupNCCL dumped debug info",
        trust="B",
    ),
    LogRule(
        code="UH7068",
        slug="nccl-call-timeout",
        family="evidence",
        role="observation",
        anchors=("NCCL timeout in: ", "NCCL timeout when waiting for nonblocking call"),
        pattern=r"NCCL timeout (?:in: \S+:\d+|when waiting for nonblocking call)",
        meaning="A call of NCCL, mostly that makes a communicator, did not end until its time-out.",
        action="The ranks that print nothing did not come to it; look at their stacks.",
        source="pytorch NCCLUtils.hpp, nccl.cpp 2.0 to 2.7",
        fires="RuntimeError: NCCL timeout when waiting for nonblocking call to become successful.",
        spares="NCCL timeout is 600 s",
        waits=(("", "the other ranks of a communicator"),),
        trust="B",
    ),
    LogRule(
        code="UH7069",
        slug="models-differ",
        family="disagreement",
        role="cause",
        anchors=("DDP expects same model across all ranks", "appears not to match s"),
        pattern=(
            r"DDP expects same model across all ranks, but Rank (?P<rank>\d+) has (?P<own>\d+) params, "
            r"while rank (?P<other>\d+) has inconsistent (?P<theirs>\d+) params"
            r"|params\[\d+\] in this process with sizes \[[^\]]*\] appears not to match s(?:izes|trides)"
        ),
        meaning="Ranks gave DDP different models; which of them is wrong this line does not tell.",
        action="Compare the number of parameters and their sizes on the ranks that it names.",
        source="pytorch reducer.cpp 2.0 to 2.7",
        fires=(
            "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 161 params, while "
            "rank 1 has inconsistent 0 params."
        ),
        spares="DDP expects the same model on all ranks",
        blames="nobody",
    ),
    LogRule(
        code="UH7074",
        slug="ranks-out-of-step",
        family="disagreement",
        role="cause",
        anchors=(
            *("Forward order differs across ranks: ", "loss log variables are different across"),
            "all_gather_list requires all workers to enter",
        ),
        pattern=(
            r"Forward order differs across ranks: rank (?P<rank>\d+) .*? rank (?P<other>\d+) "
            r"|loss log variables are different across GPUs!"
            r"|all_gather_list requires all workers to enter the function together"
        ),
        meaning=(
            "Ranks do not do the same any more: one took another branch, had no batch left, or left a "
            "step; which of them is wrong this line does not tell."
        ),
        action="Give every rank the same number of batches, and let all of them take every branch.",
        source="torch FSDP, mmcv, fairseq; mosaicml/diffusion#44, mmdetection#9291, fairseq#1088",
        fires=(
            "RuntimeError: Forward order differs across ranks: rank 0 is all-gathering 1 parameters "
            "while rank 4 is all-gathering 3 parameters"
        ),
        spares="Forward order differs from that of the first iteration on rank 0",
        trust="B",
        blames="nobody",
    ),
    LogRule(
        code="UH7076",
        slug="horovod-stalled",
        family="absent",
        role="cause",
        anchors=("[missing ranks: ", "by subset of ranks and are waiting for remainder of ranks"),
        below=(
            r"Stalled ranks:\n(?P<ranks2>\d{1,6}): \[[^\n]*(?:\n(?P<ranks3>\d{1,6}): \[[^\n]*)?"
            r"(?:\n(?P<ranks4>\d{1,6}): \[[^\n]*)?(?:\n(?P<ranks5>\d{1,6}): \[)?"
        ),
        below_mark="Stalled ranks:",
        pattern=(
            r"\[missing ranks: (?P<ranks>\d+(?:, ?\d+)*)\]"
            r"|by subset of ranks and are waiting for remainder of ranks for more than \d+ seconds"
        ),
        meaning="Horovod waits for ranks that did not submit a tensor which others did.",
        action="Look at the stacks of these ranks; of those that it calls ready the others are late.",
        source="horovod stall_inspector.cc; horovod#1012, horovod#2565, horovod#334",
        fires="Stalled ops:HorovodBroadcast_dense_1_bias_0 [missing ranks: 1]",
        spares="INFO: no missing ranks: all 4 are here",
        trust="B",
        blames="ranks",
        traits=OF_THE_ABSENT,
    ),
)
