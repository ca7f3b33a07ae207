"""What a rehearsal knows beyond its dumps: that every call met, who ended, how far it went.

The analysis judges the dumps. This adds what no dump shows, and takes away what only a live job
needs: in a rehearsal nothing moves any more, so every fault is the program's.
"""

from __future__ import annotations

import linecache
import re
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from unhang.analysis.words.decisions import sentence
from unhang.errors import ToolError
from unhang.kinds import INSUFFICIENT_EVIDENCE
from unhang.model import Frame, Note
from unhang.rehearse.matching.parties import LivingRank
from unhang.rehearse.matching.referee import Referee, RehearsalEnd
from unhang.rehearse.verdict.blaming import with_culprits
from unhang.rehearse.verdict.channels import with_earlier_partners
from unhang.rehearse.verdict.failures import with_failures, with_never_started
from unhang.rehearse.verdict.grouping import with_groups_made
from unhang.rehearse.verdict.oddcount import with_odd_exchange
from unhang.rehearse.verdict.oddside import with_odd_side
from unhang.rehearse.verdict.parting import with_parting, with_waiting_lines
from unhang.rehearse.verdict.standins import (
    of_those_that_ran,
    others_do_alike,
    ranks_that_ran,
    standing_for,
    with_doubts,
)
from unhang.rehearse.verdict.unseen import with_unseen
from unhang.report import Confidence, Decision, Finding, RankStatus, Reason, Report, Subject
from unhang.stacks.ownership import is_library, user_frame
from unhang.wording import count_of, printable, rank_phrase

_OURS: Final = str(Path(__file__).parents[1])
_SOURCE: Final = "rehearsal"
_LAST: Final = 4096
_LACKS: Final = re.compile(
    r"(?:ModuleNotFoundError|ImportError):"
    r"|(?:RuntimeError|NotImplementedError|AssertionError|ValueError|TypeError): .*"
    r"(?:\bCUDA\b|\bNVIDIA\b|\baccelerator device|\b[Tt]riton\b"
    r"|Tried to instantiate dummy base class"
    r"|not implemented (?:for|on) (?:the )?'?(?:CPU|Half|BFloat16|Float8)"
    r"|from the '\w*CPU' backend|\baten\.\w+_for_cpu\b)",
    re.DOTALL,
)
"""Errors of a script that is right, on a machine without GPUs or its packages."""
_NEEDS_VALUES: Final = re.compile(
    r"(?:torch\._subclasses\.\S*)?(?:DynamicOutputShape|DataDependentOutput|Unsupported\w+)Exception:"
    r"|.*(?:\bFakeTensor|\bfake tensor|\bmeta tensor)",
    re.DOTALL,
)
"""Errors of a script that is right, about a tensor that --shapes leaves without values."""
_CRASHES: Final = {
    128 + number: number.name
    for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGKILL)
}
"""Exit codes of ranks that no script asks for."""
_MAKES_GROUPS: Final = ("_helper", "group")
"""Functions of ours in which torch makes a group of ours: what fails below is no script's."""


def judged(report: Report, outcome: RehearsalEnd, steps: int, logs: Path) -> Report:
    """The analysis' report, with what the referee knows for sure.

    Args:
        report: The analysis' of the dumps.
        outcome: How the rehearsal ended.
        steps: What --steps said.
        logs: Where the output of ranks lies.

    Raises:
        ToolError: What stands in for devices or groups has failed, so that nothing is known.
    """
    _check(outcome.referee)
    report = of_those_that_ran(report, outcome.referee)
    report = replace(report, notes=(*_notes(outcome, steps), *_kept(report)))
    if outcome.end == "late":
        return _unfinished(report, outcome)
    failed = with_never_started(with_failures(report, outcome.referee), outcome.referee)
    if failed is not report:
        return with_doubts(failed, outcome.referee)
    return with_doubts(
        with_groups_made(_judged(report, outcome, logs), outcome.referee), outcome.referee
    )


def _judged(report: Report, outcome: RehearsalEnd, logs: Path) -> Report:
    if report.status == "problem":
        referee = outcome.referee
        return _of_program(_with_words(_with_ends(report, referee), referee, logs), referee)
    return _proved(report, outcome) if outcome.end == "over" else report


def _check(referee: Referee) -> None:
    """A failure in our own part says nothing about the script."""
    for process in referee.ranks.values():
        if process.code in _CRASHES:
            raise ToolError(
                f"rank {process.rank} was ended by {_CRASHES[process.code]}, in compiled code or "
                "for want of memory: how its script goes on is not known",
                "With --case DIR its log is kept. A smaller model takes less memory.",
            )
        if process.error and not process.error_frames:
            raise ToolError(
                f"rank {process.rank} failed outside of its script: {process.error}",
                "With --case DIR its log is kept.",
            )
        ours = [
            n for n, (_, file, _line) in enumerate(process.error_frames) if file.startswith(_OURS)
        ]
        if ours and (not ours[0] or process.error_frames[ours[0]][0] in _MAKES_GROUPS):
            raise ToolError(
                f"rank {process.rank} asked for something that no rehearsal has: {process.error}",
                "docs/rehearse.md says what it can show. With --case DIR its log is kept.",
            )
        if _lacks(process):
            raise ToolError(
                f"rank {process.rank} needs what this machine does not have: {process.error[:300]}",
                "A rehearsal runs on the CPU, with the packages that are installed here.",
            )
        if _NEEDS_VALUES.match(process.error) and not _raised_by_script(process.error_frames[0]):
            own = user_frame(Frame(*each) for each in process.error_frames)
            where = f" at {Path(own.file).name}:{own.line}" if own else ""
            raise ToolError(
                f"rank {process.rank} needs values of a tensor that has none here{where}: "
                f"{process.error[:300]}",
                "Without --shapes values are real; give the script a smaller configuration.",
            )


def _lacks(process: LivingRank) -> bool:
    """Whether its script asks for what there is on a node with GPUs, and not here."""
    if not process.error or _raised_by_script(process.error_frames[0]):
        return False
    files = [file for _, file, _ in process.error_frames[:2]]
    return bool(_LACKS.match(process.error)) or any("/torch/cuda/" in file for file in files)


def _raised_by_script(frame: tuple[str, str, int]) -> bool:
    """Whether the line itself raises: then a script says so, and no library does."""
    function, file, line = frame
    own = not is_library(Frame(function, file, line))
    return own and linecache.getline(file, line).strip().startswith("raise")


def _notes(outcome: RehearsalEnd, steps: int) -> Iterator[Note]:
    """How far the rehearsal goes, and what of it was not real."""
    referee = outcome.referee
    version = f" with torch {outcome.torch}" if outcome.torch else ""
    yield Note(
        "info", _SOURCE,
        f"{count_of(referee.size, 'rank')} ran on this machine's CPU{version} for "
        f"{outcome.seconds:.0f} s; {referee.met:,} of {count_of(referee.calls(), 'call')} met",
    )  # fmt: skip
    if steps:
        yield Note(
            "info", _SOURCE, f"each rank was ended after {count_of(steps, 'optimizer step')}"
        )
    if referee.running:
        yield Note("warning", _SOURCE, standing_for(referee))
    yield from _asked_by_some(referee)
    if referee.unreal:
        frames = [Frame(*each) for each in referee.unreal[0].frames]
        where = user_frame(frames) or Frame("", "?", 0)
        yield Note(
            "warning", _SOURCE,
            f"{count_of(len(referee.unreal), 'call')} carried no values, the first at "
            f"{where.file}:{where.line}: what the script decides by them may differ in the job",
        )  # fmt: skip
    for (file, line), what in sorted(referee.reads.items()):
        yield Note(
            "warning", _SOURCE,
            f"{file}:{line} reads {what}, which is not as in the job: what it decides may differ",
        )  # fmt: skip


def _asked_by_some(referee: Referee) -> Iterator[Note]:
    """Groups for which not all ranks called new_group: later ones may get different names."""
    asked = {rank: Counter(m for m, _ in process.asked) for rank, process in referee.ranks.items()}
    places = {m: frames for p in referee.ranks.values() for m, frames in p.asked}
    for members, frames in places.items():
        most = max(counts[members] for counts in asked.values())
        without = [rank for rank, counts in asked.items() if counts[members] < most]
        if without:
            frame = user_frame(Frame(*each) for each in frames) or Frame("", "?", 0)
            yield Note(
                "warning", _SOURCE,
                f"{frame.file}:{frame.line} makes a group of {rank_phrase(members)}, and "
                f"{rank_phrase(without)} did not: torch wants new_group called by every rank",
            )  # fmt: skip


def _kept(report: Report) -> Iterator[Note]:
    """Notes of the reading, without what is always so of a rehearsal's own files."""
    return (note for note in report.notes if note.level != "info")


def _proved(report: Report, outcome: RehearsalEnd) -> Report:
    """Every rank came to its end, and no call was left over."""
    referee = outcome.referee
    if any(p.code for p in referee.ranks.values()) or referee.met < referee.calls():
        return report
    groups = len({call.circle.number for p in referee.ranks.values() for call in p.calls.values()})
    if not groups:
        text = "No rank made a collective call, a send or a receive: there is nothing to match."
        return replace(report, status="insufficient", summary=text)
    calls, ranks = count_of(referee.calls(), "call"), ranks_that_ran(referee)
    text = (
        f"Every call met: {calls} of {ranks} in {count_of(groups, 'group')}, and every rank came "
    )
    read = [place for place, what in sorted(referee.reads.items()) if not what.startswith("torch.")]
    text += f"to the end of its script{_as_far_as(read)}{others_do_alike(referee)}."
    sure: Confidence = "medium" if read or referee.running else "high"
    return replace(
        report,
        status="healthy",
        summary=text,
        findings=tuple(
            replace(finding, summary=text, alternatives=(), actions=())
            for finding in report.findings[:1]
        ),
        decision=Decision("wait", "nothing-wrong", sure, (), text="Nothing is wrong."),
    )


def _as_far_as(read: Sequence[tuple[str, int]]) -> str:
    """How the verdict is limited by lines that read values which were not carried."""
    if not read:
        return ""
    file, line = read[0]
    more = f" and {count_of(len(read) - 1, 'other line')}" if len(read) > 1 else ""
    place = f"{Path(file).name}:{line}"
    return f", as far as it does not decide by the values that {place}{more} read"


def _unfinished(report: Report, outcome: RehearsalEnd) -> Report:
    """The time limit came first: a problem that shows already stands, health is not shown."""
    if report.status == "problem":
        return report
    ranks = outcome.referee.ranks
    busy = [rank for rank, p in ranks.items() if not p.waits and p.code is None]
    text = (
        f"The rehearsal was ended after {outcome.seconds:.0f} s, before its end: "
        f"{outcome.referee.met:,} of {count_of(outcome.referee.calls(), 'call')} had met, and "
        f"{rank_phrase(busy)} still ran."
    )
    finding = Finding(
        "f1", INSUFFICIENT_EVIDENCE.code, INSUFFICIENT_EVIDENCE.role, "low", text,
        actions=("Use a smaller model, --steps 2, or a larger --limit.",),
        confidence_reasons=("it did not come to an end",),
    )  # fmt: skip
    return replace(report, status="insufficient", summary=text, findings=(finding,))


def _of_program(report: Report, referee: Referee) -> Report:
    """Nothing of a rehearsal can be late or restarted: its faults are the program's."""
    decision = report.decision
    if decision is None or not report.causes:
        return report
    old, findings = report.findings[0], tuple(_with_lines(f, referee) for f in report.findings)
    report = _about(report, findings)
    decision = replace(report.decision or decision, confidence=findings[0].confidence)
    if decision.action != "fix-code":
        reason: Reason = "deadlock" if findings[0].family == "deadlock" else "wrong-calls"
        decision = replace(decision, action="fix-code", reason=reason)
    text = sentence(decision.action, decision.reason, decision.subjects)
    decision = replace(decision, text=text)
    # What follows the first counts further causes.
    summary = report.summary.replace(old.summary, findings[0].summary)
    return replace(report, summary=summary, decision=decision)


def _with_lines(finding: Finding, referee: Referee) -> Finding:
    """A finding with its odd side, and with the lines that no dump shows."""
    finding = with_odd_exchange(with_odd_side(finding, referee), referee)
    finding = with_unseen(finding, referee)
    finding = with_parting(_not_late(finding), referee)
    return with_earlier_partners(with_waiting_lines(finding, referee), referee)


def _not_late(finding: Finding) -> Finding:
    """What is in doubt is which side is wrong, not whether the other side comes yet."""
    doubted = finding.role == "cause" and finding.confidence == "low"
    if not doubted or finding.family not in ("absent", "disagreement"):
        return finding
    reasons = ("the other side may be the wrong one",)
    return replace(finding, confidence="medium", confidence_reasons=reasons)


def _with_words(report: Report, referee: Referee, logs: Path) -> Report:
    """The last line of a rank that ended with an exit code and no exception: it says why."""
    quiet = (r for r, p in referee.ranks.items() if p.code and not p.error)
    rank = next(quiet, None)
    if rank is None or not report.findings:
        return report
    try:
        text = (logs / f"rank_{rank}.log").read_text(errors="replace")[-_LAST:]
    except OSError:
        return report
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return report
    first, *rest = report.findings
    words = f"Rank {rank} printed last: {printable(lines[-1], 200)}"
    return replace(report, findings=(replace(first, evidence=(words, *first.evidence)), *rest))


# ------------------------------------------------------------------ ranks that came to their end


def _with_ends(report: Report, referee: Referee) -> Report:
    """Say of culprits that they came to the end of their script, or who calls too much."""
    ended = {rank for rank, process in referee.ranks.items() if process.code == 0}
    findings = tuple(_with_end(finding, ended, referee) for finding in report.findings)
    if findings == report.findings:
        return report
    return _about(replace(report, summary=findings[0].summary), findings)


def _about(report: Report, findings: tuple[Finding, ...]) -> Report:
    """The report with other findings: its decision, and the state of ranks, follow the first."""
    first, before = findings[0], report.findings[0]
    decision = report.decision
    if decision is None or first.culprits == before.culprits:
        return replace(report, findings=findings)
    subjects = tuple(Subject("rank", f"rank {rank}", rank=rank) for rank in first.culprits)
    decision = replace(decision, subjects=subjects, confidence=first.confidence)
    ranks = tuple(_in_role(status, first, before) for status in report.ranks)
    return replace(report, findings=findings, decision=decision, ranks=ranks)


def _in_role(status: RankStatus, now: Finding, before: Finding) -> RankStatus:
    if status.rank in now.culprits:
        return replace(status, status="culprit")
    return replace(status, status="waiting") if status.rank in before.culprits else status


def _with_end(finding: Finding, ended: set[int], referee: Referee) -> Finding:
    if finding.family != "absent":
        return finding
    inside = {rank for call in finding.calls if call.role == "victim" for rank in call.ranks}
    absent = _members(finding, referee) - inside
    if inside and absent <= ended and len(inside) < len(absent):
        return _turned(finding, sorted(inside), sorted(absent))
    left = {r for r, p in referee.ranks.items() if p.error_frames and not p.error}
    gone = sorted(set(finding.culprits) & (ended | left))
    words = (
        list(_came_to_ends(gone, referee)) if gone else list(_awaited(finding.culprits, referee))
    )
    return replace(finding, evidence=(*words, *finding.evidence))


def _awaited(ranks: Sequence[int], referee: Referee) -> Iterator[str]:
    """What keeps ranks from a call: a key of a store that none has set, an error, or polling."""
    waits = {rank: referee.ranks[rank].waits for rank in ranks if rank in referee.ranks}
    for key in sorted({text for text in waits.values() if text.startswith("key ")}):
        who = rank_phrase([rank for rank, text in waits.items() if text == key]).capitalize()
        yield f"{who} waited for the {printable(key)} of a store, which no rank has set."
    for process in (referee.ranks[rank] for rank in ranks if rank in referee.ranks):
        if process.error:
            yield f"Rank {process.rank} raised {printable(process.error, 200)}"
    polls = [rank for rank in ranks if rank in referee.ranks and _polls(referee.ranks[rank])]
    if polls:
        who = rank_phrase(polls).capitalize()
        yield f"{who} polled: the same question again and again, and always the same answer."


def _polls(process: LivingRank) -> bool:
    """Whether it neither ended nor waited where all stood still: then it was asking."""
    return process.code is None and not process.waits and bool(process.place)


def _members(finding: Finding, referee: Referee) -> set[int]:
    """The ranks of the group of a collective; none of a send, which needs one rank alone."""
    name = finding.group.name if finding.group and finding.seq is not None else None
    groups = (group for group in referee.circles.values() if group.name == name)
    return {rank for group in groups for rank in group.running}


def _came_to_ends(ranks: Sequence[int], referee: Referee) -> Iterator[str]:
    """Where ranks left their script, if not at its end."""
    left: dict[Frame | None, list[int]] = {}
    for rank in ranks:
        frames = (Frame(*each) for each in referee.ranks[rank].error_frames)
        left.setdefault(user_frame(frames), []).append(rank)
    for frame, those in left.items():
        if frame is None:
            yield _came_to_end(those)
        else:
            where = printable(f"{Path(frame.file).name}:{frame.line} in {frame.function}")
            who = rank_phrase(those).capitalize()
            start = f"{who} left the script by sys.exit at {where}, with exit code "
            yield f"{start}{referee.ranks[those[0]].code}."


def _came_to_end(ranks: Sequence[int]) -> str:
    return f"{rank_phrase(ranks).capitalize()} came to the end of the script, with exit code 0."


def _turned(finding: Finding, inside: Sequence[int], absent: Sequence[int]) -> Finding:
    """A call that few ranks make, and most came to their end without it: it is one too many."""
    verb = "calls" if len(absent) == 1 else "call"
    return replace(
        with_culprits(finding, inside),
        summary=f"{rank_phrase(inside)} called {finding.op} #{finding.seq}, which "
        f"{rank_phrase(absent)} never {verb}.".capitalize(),
        confidence="medium",
        confidence_reasons=("the other ranks may have left it out instead",),
        victims=(),
        evidence=(_came_to_end(absent),),
    )
