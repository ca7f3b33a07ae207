"""Run tools over cases and count how often they are right.

Cases are made, written, shown to each tool and thrown away, one at a time per process. Figures are
counts of marks; nothing here decides what is right (`verdict`) or draws (`accuracy`).
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from lab.recorder.writer import write_dumps
from lab.score.adapters import TOOLS
from lab.score.verdict import Mark, Verdict, judge
from lab.simulate.corpus import CaseSpec, make
from lab.truth import Truth


@dataclass(frozen=True, slots=True)
class Result:
    """What the tools made of one case."""

    case: str
    fault: str
    layout: str
    ranks: int
    condition: str
    truth: Truth
    verdicts: dict[str, Verdict]

    def mark(self, tool: str) -> Mark:
        """How right a tool was."""
        return judge(self.truth, self.verdicts[tool])


@dataclass(slots=True)
class Score:
    """Counts over many cases for one tool.

    Attributes:
        exact, code: Cases with the right status and culprits, with the right codes.
        sites, calls: Cases in which the line, the call was right, of those that ask for it.
        named, guilty: Accused ranks, and those of them that are culprits.
        healthy, false_alarms: Healthy jobs, and those in which something was called wrong.
        gave_up: "Insufficient" where the files suffice.
        errors: The tool failed or took too long.
        overconfident: Cases in which an innocent was named with high confidence.
        confusion: (class, code said) -> cases; the code is the status where there is none.
        claims: (confidence, code) -> causes reported with it that are right, and all of them.
    """

    cases: int = 0
    exact: int = 0
    code: int = 0
    sites: list[int] = field(default_factory=lambda: [0, 0])
    calls: list[int] = field(default_factory=lambda: [0, 0])
    named: int = 0
    guilty: int = 0
    healthy: int = 0
    false_alarms: int = 0
    gave_up: int = 0
    errors: int = 0
    overconfident: int = 0
    seconds: float = 0.0
    classes: dict[str, list[int]] = field(default_factory=dict)
    confusion: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    claims: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    @property
    def precision(self) -> float:
        """Share of accused ranks that are culprits; 1 where nobody was accused."""
        return self.guilty / self.named if self.named else 1.0

    def add(self, result: Result, tool: str) -> None:
        """Count one case."""
        mark, verdict = result.mark(tool), result.verdicts[tool]
        self.cases += 1
        self.exact += mark.exact
        self.code += mark.code
        for counts, shown in ((self.sites, mark.site), (self.calls, mark.call)):
            if shown is not None:
                counts[0] += shown
                counts[1] += 1
        self.named += mark.named
        self.guilty += mark.guilty
        self.healthy += result.truth.status[0] == "healthy"
        self.false_alarms += mark.false_alarm
        self.gave_up += mark.gave_up
        self.errors += verdict.status == "error"
        self.overconfident += mark.overconfident
        self.seconds += verdict.seconds
        right, total = self.classes.get(result.fault, [0, 0])
        self.classes[result.fault] = [right + mark.right, total + 1]
        said = "+".join(sorted({b.code for b in verdict.blames})) or verdict.status
        self.confusion[(result.fault, said)] += 1
        if not mark.right:
            self.wrong.append(result.case)
        for code, confidence, is_right in mark.claims:
            counts = self.claims.setdefault((confidence, code), [0, 0])
            counts[0] += is_right
            counts[1] += 1

    def reliability(self, confidence: str) -> tuple[int, int]:
        """Of all causes reported with a confidence: how many are right, and how many there are."""
        of_it = [counts for (said, _), counts in self.claims.items() if said == confidence]
        return sum(right for right, _ in of_it), sum(all_ for _, all_ in of_it)


def tally(results: Iterable[Result], tool: str) -> Score:
    """The score of one tool over results."""
    score = Score()
    for result in results:
        score.add(result, tool)
    return score


def score_cases(
    specs: Sequence[CaseSpec],
    tools: Sequence[str],
    *,
    processes: int = 2,
    limit_s: float = 20.0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Result]:
    """Run tools over simulated cases.

    Args:
        specs: The cases.
        tools: Names in `adapters.TOOLS`.
        processes: Worker processes.
        limit_s: How long a peer may take for one case.
        progress: Told how many of how many cases are done.

    Returns:
        Results in the order of the cases.
    """
    jobs = [(spec, tuple(tools), limit_s) for spec in sorted(specs, key=lambda s: -s.ranks)]
    results: dict[str, Result] = {}
    for done, result in enumerate(_mapped(jobs, processes), start=1):
        results[result.case] = result
        if progress:
            progress(done, len(jobs))
    return [results[spec.name] for spec in specs]


_Job = tuple[CaseSpec, tuple[str, ...], float]


def _mapped(jobs: list[_Job], processes: int) -> Iterator[Result]:
    if processes == 1:
        yield from map(_one, jobs)
        return
    # Fresh interpreters: a fork of a process with threads (progress bars) may not live.
    with get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(_one, jobs)


def _one(job: _Job) -> Result:
    spec, tools, limit_s = job
    case = make(spec)
    with tempfile.TemporaryDirectory(prefix="unhang-lab-") as folder:
        write_dumps(case.outcome, case.recording, case.seed, Path(folder))
        verdicts = look_with(tools, Path(folder), limit_s)
    return Result(
        spec.name, spec.fault, spec.layout, spec.ranks, spec.condition, case.truth, verdicts
    )


def look_with(tools: Iterable[str], folder: Path, limit_s: float) -> dict[str, Verdict]:
    """Show one folder to tools."""
    return {name: TOOLS[name].look(folder, limit_s) for name in tools}
