"""The verdict as the supervisor needs it: a small typed value, made from the whole report.

The process that judges makes it and sends it as one line of JSON; the supervisor takes what has
the shape of it. Both sides are here, so that a field is added in one place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from unhang.incoming import fit, value_of
from unhang.wording import printable, rank_phrase

if TYPE_CHECKING:
    from unhang.report import Decision, Finding, Report
    from unhang.run.meeting.company import ToldVerdict

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LONGEST_LINE = 1000


@dataclass(frozen=True, slots=True)
class Verdict:
    """What judging came to.

    Attributes:
        text: The report for people, or why there is none.
        status: As in the report; "" where there is none.
        summary: The verdict's sentence.
        moving: Ranks outside of any call that were seen to move, and culprits that were: busy or
            slow rather than stuck.
        pausing: Those that stand still for no longer than a pause may take.
        action: What the report's decision says, unless that is of low confidence; "" for none.
        guessed: Neither its causes nor its decision have more than low confidence.
        reason: Why the decision is as it is, in the report's word.
        decision: All of that in one sentence.
        place: Where the culprits of the first cause are in their code, or "".
        unseen: All ranks that its causes name are ranks that no node has reported; or they name no
            rank, and none was reported.
        confidence: Of its first cause; "" where there is none.
        host: The one host that has the culprits of its first cause, or "".
        case: The directory that was judged, which the supervisor knows; None where there is none.
    """

    text: str
    status: str = ""
    summary: str = ""
    moving: tuple[int, ...] = ()
    pausing: tuple[int, ...] = ()
    action: str = ""
    guessed: bool = False
    reason: str = ""
    decision: str = ""
    place: str = ""
    unseen: bool = False
    confidence: str = ""
    host: str = ""
    case: Path | None = None

    @property
    def is_open(self) -> bool:
        """Whether another look may tell more: nothing is sure, and no rank seems to be idle."""
        unsure = self.status == "insufficient" or (self.status == "problem" and self.guessed)
        return unsure and self.reason != "idle"

    @property
    def exit_code(self) -> int:
        """The exit code of commands that judge: 0 healthy, 1 a problem, 3 not enough evidence."""
        return {"healthy": 0, "problem": 1, "slow": 1}.get(self.status, 3)


def verdict_of(
    report: Report, text: str, looked_at: Sequence[tuple[int, int]] | None = None
) -> Verdict:
    """What the supervisor needs of a report.

    Args:
        report: The whole of it.
        text: The report for people.
        looked_at: First and last of the ranks that nodes have reported; None where nothing tells.
    """
    causes = [found for found in report.findings if found.role == "cause"]
    decision = report.decision
    outside: list[Finding | Decision] = [*causes, *([decision] if decision else [])]
    return Verdict(
        text=text,
        status=report.status,
        summary=report.summary,
        moving=tuple(sorted({rank for told in outside for rank in told.moving})),
        pausing=tuple(sorted({rank for told in outside for rank in told.pausing})),
        action=decision.action if decision and decision.confidence != "low" else "",
        guessed=all(each.confidence == "low" for each in outside),
        reason=decision.reason if decision else "",
        decision=decision.text if decision else "",
        place=_place(causes[0]) if causes else "",
        unseen=_is_unseen([found.culprits for found in causes], looked_at),
        confidence=causes[0].confidence if causes else "",
        host=_host(report, causes[0]) if causes else "",
    )


def sent(verdict: Verdict, most: int = 0) -> str:
    """A verdict as one line of JSON, all ASCII; without the case, and the end of a longer text."""
    if most and len(verdict.text) > most:
        verdict = replace(verdict, text=f"{verdict.text[:most]}\n(cut)\n")
    return json.dumps(asdict(replace(verdict, case=None)))


def taken(data: bytes, case: Path) -> Verdict:
    """The verdict about a case, from what was sent.

    Raises:
        ValueError: It is none.
    """
    return replace(fit(value_of(data), Verdict), case=case)


def heard(told: ToldVerdict, case: Path) -> Verdict | None:
    """What the supervisor that judges for all has told; None where that is no verdict.

    Its text is another's: without its terminal's colours, and safe to print line by line.
    """
    try:
        verdict = taken(told.verdict.encode(), case)
    except ValueError:
        return None
    lines = _COLOUR.sub("", verdict.text).splitlines()
    place = f"The evidence of all nodes is on {told.host}, in {told.case}."
    text = "\n".join(printable(line, _LONGEST_LINE) for line in (*lines, place))
    return replace(verdict, text=f"{text}\n", summary=printable(verdict.summary))


def _place(cause: Finding) -> str:
    """Where culprits stand, or were last seen: "rank 2 at src/data.py:31"."""
    sites = (site for site in cause.sites if site.role == "culprit" and site.ranks)
    site = next(sites, None)
    if site is None:
        return ""
    file, seen = "/".join(site.file.split("/")[-2:]), "last seen " if site.after else ""
    return f"{rank_phrase(site.ranks)} {seen}at {file}:{site.line}"


def _host(report: Report, cause: Finding) -> str:
    culprits = frozenset(cause.culprits)
    hosts = {each.host for each in report.ranks if each.rank in culprits}
    return hosts.pop() if len(hosts) == 1 else ""


def _is_unseen(
    culprits: Sequence[Sequence[int]], looked_at: Sequence[tuple[int, int]] | None
) -> bool:
    """Whether no node has reported a rank that the causes name, or any rank if they name none.

    One cause is enough that rests on what was seen.
    """
    if looked_at is None or not culprits:
        return False

    def is_seen(rank: int) -> bool:
        return any(first <= rank <= last for first, last in looked_at)

    return not any(any(map(is_seen, named)) if named else looked_at for named in culprits)
