"""JUnit's XML: the verdict as a test that passed, failed, or could not be judged."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from unhang.case import Case
from unhang.report import Report
from unhang.reports.ci.annotations import Placed, placed
from unhang.reports.look import Look


def render(report: Report, case: Case | None = None, look: Look | None = None) -> str:
    """Return one suite with one test for each message; `case` and `look` change nothing."""
    del case, look
    kind = {"problem": "failure", "slow": "failure", "insufficient": "error", "healthy": ""}
    element = kind[report.status]
    tests = [_test(each, element) for each in placed(report)]
    counts = {"failure": 0, "error": 0} | ({element: len(tests)} if element else {})
    suite = f'name="unhang" tests="{len(tests)}"'
    suite += f' failures="{counts["failure"]}" errors="{counts["error"]}"'
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuite {suite}>", *tests]
    return "\n".join([*lines, "</testsuite>", ""])


def _test(each: Placed, element: str) -> str:
    place = f" file={quoteattr(each.file)} line={quoteattr(str(each.line))}" if each.file else ""
    name = quoteattr(each.title or "verdict")
    start = f'  <testcase classname="unhang" name={name}{place}'
    if not element:
        return f"{start}/>"
    where = f"{each.file}:{each.line}: " if each.file else ""
    body = f"<{element} message={quoteattr(each.text)}>{escape(where + each.text)}</{element}>"
    return f"{start}>\n    {body}\n  </testcase>"
