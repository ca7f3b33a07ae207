"""What is an error by its own mark, where no other rule knows its words (UH793 and UH799)."""

from __future__ import annotations

from typing import Final

from unhang.kinds import Remedy, Trait
from unhang.logs.rules.base import LogRule

__all__ = ["UNEXPLAINED_ERROR", "UNHANDLED_EXCEPTION"]

UNHANDLED_EXCEPTION: Final = LogRule(
    code="UH793",
    slug="unhandled-exception",
    family="failure",
    role="cause",
    anchors=("Error: ", "Exception: "),
    pattern=(
        r"^(?P<type>(?!torch\.multiprocessing\.spawn\.ProcessRaised|ray\.train\.WorkerGroupError)"
        r"(?:[A-Za-z_][\w]*\.)*(?:[A-Z]\w*(?:Error|Exception|Interrupt)|Exception(?=: \S)"
        r"|SystemExit)): (?P<what>.*)"
    ),
    meaning="A Python exception that nobody caught ended this rank, or one of its threads.",
    action="Read its traceback: the rank leaves, or waits for its thread, and its peers wait.",
    source="CPython",
    fires="ValueError: batch 812 has no labels",
    spares="caught ValueError: batch 812 has no labels, retrying",
    trust="B",
    traits=Trait.ENDING,
    remedy=Remedy.CODE,
)

UNEXPLAINED_ERROR: Final = LogRule(
    code="UH799",
    slug="unexplained-error",
    family="failure",
    role="observation",
    anchors=(
        *("NCCL WARN", "CCOM WARN", "slurmstepd: error", "srun: error"),
        *("ERROR", "CRITICAL", "FATAL", "rror: ", "terminate called", "what():"),
        *(f"[{level}{more}" for level in "EF" for more in " 0123456789"),
        *("core dumped", "Killed", "Caught signal", "Assertion `", "[enforce fail at "),
        *(
            "exit code",
            "return code",
            "exitcode",
            "exit status",
            "exited with",
            "Job step aborted",
        ),
        *("Traceback (most recent", "torch/distributed/elastic/", "HIP failure"),
        *("segfault at", "soft lockup", "blocked for more than", "Kernel panic"),
        *("Hardware Error", "I/O error", "Heartbeat monitor timed out"),
        "ProcessGroupNCCL.cpp:",
    ),
    pattern=(
        r"(?:NCCL|CCOM) WARN (?!Missing \")|^(?:\S+: )?slurmstepd\S*: .*(?:error|CANCELLED)|srun: error: "
        r"|^.{0,80}?(?:^|[\s\[(|<])(?:ERROR|CRITICAL|FATAL(?: ERROR)?)(?:[\])>:|]| [-|]| +\S)"
        r"|^[\w./-]{0,40}:? ?(?:fatal )?[Ee]rror: \S"
        r"|^terminate called|^\s*what\(\):\s*\S|^\[[EF] \S+:\d+\]|\(core dumped\)"
        r"|^Killed\b|Caught signal \d+ \(|: Killed$|Assertion `.*[`'] ?failed"
        r"|\[enforce fail at |Job step aborted"
        r"|\b[Ee]xit(?:ed|s|ing)? (?:with|on) (?:non-zero )?"
        r"(?:(?:exit |return )?(?:code|status)|signal)[ :=]*(?!0\b)-?\d"
        r"|\bexitcode *[:=] *(?!0\b)-?\d|non-zero exit status|Heartbeat monitor timed out"
        r"|^Traceback \(most recent call last\)|HIP failure"
        r"|segfault at |soft lockup|blocked for more than \d+ seconds|Kernel panic"
        r"|Hardware Error|I/O error"
    ),
    meaning="The line marks itself as an error, and no rule knows what it says.",
    action="Read it, and the lines around it.",
    source="NCCL, glog, SLURM, CPython and Linux mark their errors so",
    fires="node01:11:42 [0] misc/none.cc:7 NCCL WARN Never heard of this before",
    spares="node01:11:42 [0] NCCL INFO NCCL_ASYNC_ERROR_HANDLING set by environment to 1",
    trust="C",
)
