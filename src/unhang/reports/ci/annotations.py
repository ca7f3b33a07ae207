"""What a service shows at a line: each cause with its sites, or the verdict where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from unhang.report import Report, Status
from unhang.wording import printable

LEVELS: dict[Status, str] = {
    "problem": "error", "slow": "warning", "insufficient": "warning", "healthy": "notice",
}  # fmt: skip
"""How grave a verdict is to such a service."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One message.

    Attributes:
        code, title: Of the kind; "" for the verdict alone.
        file, line: "" and 0 where no line is to blame.
    """

    text: str
    code: str = ""
    title: str = ""
    file: str = ""
    line: int = 0


def placed(report: Report) -> Iterator[Placed]:
    """Messages of a report: a cause stands at each line of its culprits, else of all its ranks."""
    for cause in report.causes:
        text = printable(cause.summary)
        title = f"{cause.code} {cause.slug}"
        sites = [site for site in cause.sites if site.role == "culprit"] or list(cause.sites)
        for file, line in dict.fromkeys((site.file, site.line) for site in sites):
            yield Placed(text, cause.code, title, printable(file), line)
        if not sites:
            yield Placed(text, cause.code, title)
    if not report.causes:
        yield Placed(printable(report.summary))
