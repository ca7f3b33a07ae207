"""Errors of those who only waited: by library and words, and for what they waited (UH7077).

Whoever prints "timed out" has waited for something that others had to do. It is a witness, never
the culprit, and nothing in its code is wrong. The table has a row for each library's words; the
rule is made of all rows. What a time-out says of its own machine alone (a page, a lock, a data
loader) is no row here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from unhang.logs.rules.base import LogRule

__all__ = ["RULES", "WAITERS", "Waiter"]


@dataclass(frozen=True, slots=True)
class Waiter:
    """What a library prints of a process that waited in vain.

    Attributes:
        library: Who prints it.
        anchors: Literals of which at least one stands in every line that can match.
        pattern: Searched in the line; a named group `peerN` is who did not answer, by the number
            that the library has for it.
        waited_for: What the process waited for, to be read after "waited for".
        fires: A line as it is printed.
        spares: A similar line that is another thing.
    """

    library: str
    anchors: tuple[str, ...]
    pattern: str
    waited_for: str
    fires: str
    spares: str


_OTHERS: Final = (
    r"\b(?:worker|rank|peer|engine|executor|client|actor|process(?:es)?\b|server|node|response|replica"
    r"|member|participant|broadcast|handshake|message)s?\b"
)

WAITERS: Final = (
    Waiter(
        "torch_npu, CANN",
        (
            *("execution of the internal task times out", "imeout execute failed, reason=["),
            *(
                "synchronize stream failed",
                "rror code is 5070",
                "rror code:5070",
                "runtime result = 5070",
            ),
            "error code is 507",
            "task timeout, ",
        ),
        # 507012 report, 507014 AI core, 507017 AI CPU, 507034 vector core, 507046 stream,
        # 507047 event, 507048 FFTS+: time-outs all; 507015, 507018, 507035 and 507053 are faults.
        r"(?:error code ?(?:is|:)|runtime result =) ?(?:507012|507014|507017|507034|50704[678])\b"
        r"|The execution of the internal task times out|\w+WithTimeout execute failed, reason=\[[\w+ ]*timeout",
        "its device, mostly for peers in a collective",
        "RuntimeError: ACL stream synchronize failed, error code:507048",
        "RuntimeError: ACL stream synchronize failed, error code:507015",
    ),
    Waiter(
        "DeepEP",
        ("DeepEP", "deep_ep"),
        r"DeepEP (?:[\w:]{1,20} ){0,6}(?:\([\w ]+\) )?time-?out\b(?! (?:is|of|=))(?:.*?\b(?:thread|src_rank|src rank|src NVL)"
        r" ?[=:] ?(?P<peer1>\d{1,6}))?",
        "tokens or counts of its peers",
        "RuntimeError: DeepEP error: timeout (dispatch CPU)",
        "DeepEP timeouts are 100 s by default",
    ),
    Waiter(
        "SGLang",
        ("could finish the model loading, but there are other ranks",),
        r"could finish the model loading, but there are other ranks that didn't",
        "the other ranks to load the model",
        "RuntimeError: TP rank 0 could finish the model loading, but there are other ranks that "
        "didn't finish loading.",
        "TP rank 0 finished loading the model",
    ),
    Waiter(
        "vLLM",
        ("rror: cancelled",),
        r"^(?:\w+\.)*RuntimeError: cancelled$",
        "the next message of the engine's queue",
        "RuntimeError: cancelled",
        "RuntimeError: cancelled by its client",
    ),
    Waiter(
        "Ray",
        ("GetTimeoutError", "PlacementGroupSchedulingTimeout", "Get timed out: "),
        r"(?:^|\.)GetTimeoutError\b|Get timed out: some object",
        "the answer of an actor or a task",
        "ray.exceptions.GetTimeoutError: Get timed out: some object(s) not ready.",
        "except GetTimeoutError as error:",
    ),
    Waiter(
        "any",
        (*("imed out wait", "ime out wait", "imeout wait", "ime-out wait"), "imed out after wait"),
        rf"^(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Timeout): .{{0,120}}?\b[Tt]ime(?:d )?-?\s?out (?:after )?"
        rf"wait(?:ing|ed)? (?:.{{0,20}}\b)?for .{{0,80}}?{_OTHERS}",
        "others to come or to answer",
        "TimeoutError: Timed out waiting for engine core processes to start.",
        "RuntimeError: Timed out waiting for the lock of the cache",
    ),
)
"""By library, and what each waiter waited for. The rows are tried in this order."""


def _pattern() -> str:
    """One regular expression of all rows; the group of a row is named by its place."""
    return "|".join(f"(?P<wait{place}>{row.pattern})" for place, row in enumerate(WAITERS))


RULES: tuple[LogRule, ...] = (
    LogRule(
        code="UH7077",
        slug="waited-in-vain",
        family="evidence",
        role="observation",
        anchors=tuple(dict.fromkeys(anchor for row in WAITERS for anchor in row.anchors)),
        pattern=_pattern(),
        meaning="This process waited for others until a time-out: it tells of a hang, and made none.",
        action=(
            "Look at those who print nothing, or another error before it: their logs, and their "
            "stacks with unhang stacks."
        ),
        source="torch_npu, DeepEP, SGLang, vLLM, Ray; sglang#39128, DeepEP#707, vllm-ascend#2800",
        fires=WAITERS[0].fires,
        spares=WAITERS[0].spares,
        trust="B",
        waits=tuple((f"wait{place}", row.waited_for) for place, row in enumerate(WAITERS)),
    ),
)
