"""Is what is advised right? Simulated incidents, and what one should do about each of them.

    python -m lab.score.decisions --cases 600

A decision is right if its action is, and if it names no rank that the truth does not allow. That a
node is left out is never right here: no case of the corpus has a look at a node.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from lab.recorder.writer import write_dumps
from lab.simulate.corpus import CaseSpec, cases, make
from lab.truth import Truth
from unhang.analysis import diagnose
from unhang.errors import NoEvidenceError
from unhang.ingest import load
from unhang.report import Decision

_CODE: Final = ("UH102", "UH2", "UH301", "UH303", "UH304")
"""Beginnings of the codes of faults that are in the program: it has to be changed."""

_PROGRAM: Final = frozenset({"skipped-send", "skipped-receive"})
"""The same, of classes whose code says only that somebody is not there."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """One incident, what was advised and whether that is right."""

    case: str
    fault: str
    decision: Decision
    right: bool


def wanted_actions(truth: Truth, fault: str) -> frozenset[str]:
    """What one should do about an incident, as far as its files allow to know it."""
    wanted = set()
    for one in (truth, *truth.either):
        for status in one.status:
            by_status = {
                "problem": _against(one, fault),
                "insufficient": {"look-first"},
                "slow": {"look-first", "wait"},  # a rank is named, and what it costs
            }
            wanted |= by_status.get(status, {"wait"})
    return frozenset(wanted)


def _against(truth: Truth, fault: str) -> set[str]:
    codes = [cause.codes for cause in truth.causes]
    unsure = all(cause.ceiling == "low" for cause in truth.causes)
    found = {
        "fix-code" if code.startswith(_CODE) or fault in _PROGRAM else "look-first"
        for each in codes
        for code in (each if unsure else each[:1])
    }
    return found | ({"look-first"} if unsure else set())


def is_right(truth: Truth, fault: str, decision: Decision) -> bool:
    """Whether an action is right, and about nobody innocent."""
    named = {subject.rank for subject in decision.subjects if subject.rank is not None}
    causes = [cause for one in (truth, *truth.either) for cause in one.causes]
    allowed = frozenset().union(*(cause.allowed for cause in causes))
    innocent = bool(named - allowed) and decision.reason != "slow"
    return decision.action in wanted_actions(truth, fault) and not innocent


def replay(spec: CaseSpec) -> Replayed | None:
    """Make one incident, have it judged, and compare; None where no file can be read at all."""
    with tempfile.TemporaryDirectory() as folder:
        made = make(spec)
        write_dumps(made.outcome, made.recording, made.seed, Path(folder))
        try:
            decision = diagnose(load([Path(folder)])).decision
        except NoEvidenceError:
            return None
    if decision is None:
        raise RuntimeError(f"{spec.name}: nothing was decided")
    return Replayed(spec.name, spec.fault, decision, is_right(made.truth, spec.fault, decision))


def main(words: Sequence[str] | None = None) -> int:
    """Replay and print how many were right."""
    parser = argparse.ArgumentParser(prog="lab.score.decisions", description=__doc__)
    parser.add_argument("--cases", type=int, default=600)
    parser.add_argument("--largest", type=int, default=64, metavar="N", help="ranks")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args(words)
    specs = [s for part in ("tuned", "held-out") for s in cases(part) if s.ranks <= args.largest]
    specs = specs[:: max(1, len(specs) // args.cases)]
    with get_context("spawn").Pool(args.processes) as pool:
        found = [each for each in pool.imap_unordered(replay, specs, chunksize=4) if each]
    right = sum(each.right for each in found)
    actions = Counter(each.decision.action for each in found)
    lines = [f"{e.case}: {e.decision.action} ({e.decision.reason})" for e in found if not e.right]
    lines.append(f"{right} of {len(found)} right ({100 * right / len(found):.1f} %)")
    lines += [f"  {action}: {count}" for action, count in sorted(actions.items())]
    sys.stdout.write("\n".join([*lines, ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
