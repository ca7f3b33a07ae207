"""What a check saw, before it is a finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from unhang.checks import Check
from unhang.report import Subject

Level: TypeAlias = Literal["ok", "info", "warn", "fail", "skip"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check saw.

    Attributes:
        seen: What was seen, one sentence.
        evidence: Details, one sentence each.
        action: Overrides the check's own advice where more is known.
        per_host: What to do on each host, where that differs; instead of `action`.
        doubt: Why it is not certain, a phrase; "" where it is.
    """

    check: Check
    level: Level
    seen: str
    subjects: tuple[Subject, ...] = ()
    ranks: tuple[int, ...] = ()
    evidence: tuple[str, ...] = ()
    action: str = ""
    per_host: tuple[str, ...] = ()
    doubt: str = ""

    @property
    def confidence(self) -> Literal["high", "medium"]:
        """What was looked at directly is certain, but for a doubt."""
        return "medium" if self.doubt else "high"

    @property
    def code(self) -> str:
        """The check's code."""
        return self.check.code


def host_subject(*names: str) -> tuple[Subject, ...]:
    """Hosts as what a result is about."""
    return tuple(Subject("host", name, host=name) for name in names)


def of_host(
    check: Check, level: Level, host: str, seen: str, action: str = "", *evidence: str
) -> CheckResult:
    """What was seen of one host: "node01: the words."."""
    subjects = host_subject(host)
    return CheckResult(check, level, f"{host}: {seen}.", subjects, evidence=evidence, action=action)


def judged(check: Check, host: str, seen: str, *, bad: bool, action: str = "") -> CheckResult:
    """A figure of one host, shown where all is well, too; what to do where it is not."""
    return of_host(check, "warn" if bad else "ok", host, seen, action if bad else "")
