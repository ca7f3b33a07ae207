"""What the doctor's checks found, short enough to compare."""

from __future__ import annotations

from unhang.doctor.checks.results import CheckResult


def bad(results: list[CheckResult]) -> list[tuple[str, str]]:
    """Codes and levels of what is not in order."""
    return [(r.code, r.level) for r in results if r.level in ("fail", "warn")]
