"""What is true about a capture, as a file beside it, and whether a verdict agrees with it.

Reports are compared as JSON, as a program that calls `unhang diagnose --format json` sees them.
This module knows no analysis and does not decide what is right: `faults` does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import Any

__all__ = ["SCHEMA", "TRUTH_FILE", "Truth", "TruthSite", "Verdict", "disagreements", "read_truth"]

SCHEMA = "unhang.truth/1"
TRUTH_FILE = "truth.json"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One right verdict: status, exactly these culprits, in a finding with one of these codes."""

    status: str
    culprits: tuple[int, ...]
    codes: tuple[str, ...]
    confident: bool = True


@dataclass(frozen=True, slots=True)
class TruthSite:
    """A source line that a right verdict of a hang shows; `file` is a base name."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Truth:
    """What is true about one capture.

    Attributes:
        fault: Name of the live fault.
        world_size: Number of ranks.
        verdicts: The right verdicts, best first.
        sites: Lines that a right verdict shows, if it names a call.
        silent: Ranks that left no dump.
        notes: Sentences for people.
    """

    fault: str
    world_size: int
    verdicts: tuple[Verdict, ...]
    sites: tuple[TruthSite, ...] = ()
    silent: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    def write(self, directory: Path) -> None:
        """Write it beside the dumps."""
        text = json.dumps({"schema": SCHEMA, **asdict(self)}, indent=2)
        (directory / TRUTH_FILE).write_text(text + "\n", encoding="utf-8")


def read_truth(directory: Path) -> Truth:
    """Read the truth about the capture in a directory."""
    data = json.loads((directory / TRUTH_FILE).read_text(encoding="utf-8"))
    return Truth(
        fault=data["fault"],
        world_size=data["world_size"],
        verdicts=tuple(
            Verdict(v["status"], tuple(v["culprits"]), tuple(v["codes"]), v["confident"])
            for v in data["verdicts"]
        ),
        sites=tuple(TruthSite(**site) for site in data["sites"]),
        silent=tuple(data["silent"]),
        notes=tuple(data["notes"]),
    )


def disagreements(truth: Truth, report: Mapping[str, Any]) -> list[str]:
    """Say in sentences how a report differs from the nearest right verdict; empty if it is right.

    Args:
        truth: What is true.
        report: A report as JSON (schema "unhang.report/1").
    """
    attempts = [_against(verdict, truth, report) for verdict in truth.verdicts]
    return min(attempts, key=len)


def _against(verdict: Verdict, truth: Truth, report: Mapping[str, Any]) -> list[str]:
    wrong = []
    if report["status"] != verdict.status:
        wrong.append(f"status is {report['status']}, not {verdict.status}")
    judging = _judging(report)
    culprits = sorted({rank for finding in judging for rank in finding["culprits"]})
    if culprits != sorted(verdict.culprits):
        wrong.append(f"culprits are {culprits}, not {sorted(verdict.culprits)}")
    codes = {finding["code"] for finding in judging}
    if not codes or not codes <= set(verdict.codes):
        wrong.append(f"codes are {sorted(codes)}, not among {list(verdict.codes)}")
    if not verdict.confident and any(f["confidence"] == "high" for f in judging):
        wrong.append("confidence is high where the evidence allows medium")
    if verdict.status == "problem":
        wrong += _missing_sites(truth, judging)
    return wrong


def _judging(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The findings that carry the verdict: causes, or all of them where nothing is wrong."""
    findings: list[Mapping[str, Any]] = report["findings"]
    causes = [finding for finding in findings if finding["role"] == "cause"]
    return causes or findings


def _missing_sites(truth: Truth, findings: list[Mapping[str, Any]]) -> list[str]:
    shown = {(PurePath(site["file"]).name, site["line"]) for f in findings for site in f["sites"]}
    missing = [site for site in truth.sites if (site.file, site.line) not in shown]
    return [f"{site.file}:{site.line} is not shown" for site in missing]
