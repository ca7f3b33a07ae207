"""What is new since the last good run of the same job, where its case lies next to this one.

Only where the logs tell of trouble: what is new is reported with the verdict and never changes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unhang.casedir.earlier import good_before
from unhang.logs.files import LogSource, find_logs
from unhang.logs.keeping import WENT_ON, LogScan
from unhang.logs.novelty import add_new, read_good_run
from unhang.logs.rules import rule_of
from unhang.model import LogEvent, Note
from unhang.regular import leading_out
from unhang.wording import printable


def add_new_since(scan: LogScan, sources: Sequence[LogSource], case: Path) -> None:
    """Compare the logs of a case with an earlier one of the same job that ended well, if any.

    Args:
        scan: What was found in the logs; gets the new lines, and a note.
        sources: The logs.
        case: In which they lie.
    """
    earlier = good_before(case) if any(map(_tells_of_trouble, scan.events)) else None
    good = read_good_run((), scan.notes, _logs_of(earlier)) if earlier else None
    if earlier is None or good is None or not good.shapes:
        return
    add_new(scan, sources, good)
    text = (
        f"compared with {printable(earlier.name)}, an earlier healthy case of the same command "
        "(--no-baseline skips it)"
    )
    scan.notes.append(Note("info", "baseline", text))


def _logs_of(case: Path) -> list[LogSource]:
    return find_logs(case / "logs", {*leading_out(case, ["logs"])})


def _tells_of_trouble(event: LogEvent) -> bool:
    rule = rule_of(event.code)
    told = rule is not None and rule.role != "noise" and not rule.harmless
    return told and WENT_ON not in event.fields
