"""The figures of a scoring run as text, JSON and the page docs/accuracy.md.

Of the held-out part only the sums over all cases are shown, neither cases nor classes: whoever
writes rules reads these pages too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lab.score.adapters import TOOLS
from lab.score.running import Result, Score, tally
from lab.score.verdict import CONFIDENCES
from lab.sections import in_page, section_of

Parts = Mapping[str, Sequence[Result]]

_WORST = 12


def _tools(results: Sequence[Result]) -> list[str]:
    return list(results[0].verdicts) if results else []


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _rows(score: Score) -> dict[str, str]:
    """The figures of one tool, by their names."""
    return {
        "cases": str(score.cases),
        "exact culprit set": _percent(score.exact, score.cases),
        "the same, of cases that it read": _percent(score.exact, score.cases - score.errors),
        "right code": _percent(score.code, score.cases),
        "right line of code": _percent(*score.sites),
        "right call": _percent(*score.calls),
        "precision of blame": _percent(score.precision, 1.0),
        "false alarms on healthy jobs": f"{score.false_alarms} of {score.healthy}",
        "gave up where files suffice": _percent(score.gave_up, score.cases),
        "failed or too slow": _percent(score.errors, score.cases),
        "innocent with high confidence": str(score.overconfident),
    }


def as_text(parts: Parts) -> str:
    """Tables for a terminal."""
    lines = []
    for part, results in parts.items():
        tools = _tools(results)
        scores = {tool: _rows(tally(results, tool)) for tool in tools}
        lines.append(f"{part} part")
        lines.append(" " * 32 + "".join(f"{tool:>16}" for tool in tools))
        for name in next(iter(scores.values()), {}):
            cells = "".join(f"{scores[tool][name]:>16}" for tool in tools)
            lines.append(f"  {name:30}{cells}")
        if _ours(results):
            ours = tally(results, "unhang")
            said = (f"{name} {_share(*ours.reliability(name))}" for name in CONFIDENCES)
            lines.append(f"  right causes of unhang, by confidence: {', '.join(said)}")
        lines.append("")
    return "\n".join(lines)


def as_json(parts: Parts) -> dict[str, Any]:
    """The same figures, with classes, for programs."""
    figures: dict[str, Any] = {}
    for part, results in parts.items():
        figures[part] = {}
        for tool in _tools(results):
            score = tally(results, tool)
            figures[part][tool] = {
                "cases": score.cases,
                "exact": score.exact,
                "code": score.code,
                "sites": score.sites,
                "calls": score.calls,
                "named": score.named,
                "guilty": score.guilty,
                "healthy": score.healthy,
                "false_alarms": score.false_alarms,
                "gave_up": score.gave_up,
                "errors": score.errors,
                "overconfident": score.overconfident,
                "seconds": round(score.seconds, 1),
                "reliability": {name: score.reliability(name) for name in CONFIDENCES},
            }
            if part != "held-out":
                figures[part][tool]["classes"] = score.classes
                figures[part][tool]["wrong"] = score.wrong
    return figures


def wrong_cases(parts: Parts) -> str:
    """Our wrong cases of the parts that may be looked at, with what was said and what is true."""
    lines = []
    for part, results in parts.items():
        for result in results:
            if part == "held-out" or "unhang" not in result.verdicts:
                continue
            mark = result.mark("unhang")
            if mark.right and mark.site is not False and mark.call is not False:
                continue
            said = result.verdicts["unhang"]
            lines.append(
                f"{result.case} ({result.layout}, {result.ranks} ranks, {result.condition})"
                f" exact={mark.exact} code={mark.code} line={mark.site} call={mark.call}"
            )
            lines.append(f"    true: {result.truth.status} {_causes(result)}")
            blames = [(b.code, sorted(b.culprits)[:9], b.confidence) for b in said.blames]
            lines.append(f"    said: {said.status} {blames} {said.detail[:160]}")
    return "\n".join(lines)


def _causes(result: Result) -> str:
    return "; ".join(
        f"{'/'.join(c.codes)} {list(c.culprits)[:9]} or {[list(a)[:9] for a in c.also]}"
        for c in result.truth.causes
    )


def _reliability(parts: Parts, known: Mapping[str, Mapping[str, str]] = {}) -> str:
    """How often our causes are right, by the confidence that they are reported with.

    Args:
        parts: Scored now.
        known: Of parts that were scored before: confidence -> share.
    """
    columns = {part: dict(shares) for part, shares in known.items()}
    for part, results in parts.items():
        if _ours(results):
            score = tally(results, "unhang")
            columns[part] = {name: _share(*score.reliability(name)) for name in CONFIDENCES}
    if not columns:
        return ""
    rows = [[c, _WANTED[c], *(shares[c] for shares in columns.values())] for c in CONFIDENCES]
    return _RELIABILITY + _table(["confidence", "wanted", *columns], rows)


def _known(page: str) -> dict[str, dict[str, str]]:
    """The shares of all parts that a page tells."""
    table = section_of(page, _RELIABILITY.partition("\n")[0]).splitlines()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in table if line[:1] == "|"]
    if not cells:
        return {}
    shares = {row[0]: row[2:] for row in cells[2:]}
    return {part: {c: shares[c][at] for c in shares} for at, part in enumerate(cells[0][2:])}


def _ours(results: Sequence[Result]) -> bool:
    return "unhang" in _tools(results)


def _share(right: int, total: int) -> str:
    return f"{_percent(right, total)} of {total}" if total else "none"


def _missed(score: Score) -> str:
    """The kinds that were reported with high or medium confidence and are wrong."""
    wrong = [
        f"{code} ({total - right} of {total} with {confidence} confidence)"
        for (confidence, code), (right, total) in sorted(score.claims.items())
        if confidence != "low" and right < total
    ]
    return f"Reported wrongly: {', '.join(wrong)}.\n" if wrong else ""


_WANTED = {"high": "99 %", "medium": "85 %", "low": "-"}

_RELIABILITY = """## How much a confidence is worth

Of all causes that unhang reports with a confidence, the share that is right: an accepted code, and
no innocent rank named.

"""

_HEAD = """# Accuracy

Written by `python -m lab score --write docs/accuracy.md`; do not edit.

Every case is a simulated job (`python -m lab simulate`) with an injected fault, or a real one that
was captured (`python -m lab live`), written to files exactly as torch writes them, and read by each
tool at its default settings. What is right stands in the case's truth: status, culprits, accepted
codes, call and line, as far as the files can show them (two sides without a majority, loops and
calls that all have joined have no culprit).

- **exact culprit set**: the right status, and exactly the right ranks named.
- **right code**: every cause reported with an accepted code, and no other cause.
- **right line / call**: where the truth has one, it is shown.
- **precision of blame**: of all ranks named in all cases, the share that is to blame.

Peers are read as kindly as possible: the ranks that they name first, with the code that comes
nearest to their words. A peer that prints nothing is counted as saying "healthy".
The *tuned* part may have shaped the rules. The *held-out* part has other seeds, and faults
composed of two; only its sums are shown, so that no rule can be written against it. The *real* part
are dumps that released builds of torch wrote with their own recorder for NCCL, on a machine where
the device was replaced by a stand-in (tests/data/nccl). *Live* captures are real Gloo jobs.
"""


def as_markdown(parts: Parts, page: str = "") -> str:
    """The page docs/accuracy.md.

    Args:
        parts: What was scored.
        page: An older one: parts that were not scored, and sections of other commands, stay.
    """
    new = f"{_HEAD}\n{_reliability(parts, _known(page))}"
    for heading in [line for line in page.splitlines() if line.startswith("## ")]:
        if heading != _RELIABILITY.partition("\n")[0]:
            new = in_page(new, section_of(page, heading))
    for part, results in parts.items():
        new = in_page(new, _section(part, results)) if results else new
    return new


def _section(part: str, results: Sequence[Result]) -> str:
    """One part: the figures, and but for the held-out one the classes."""
    tools = _tools(results)
    scores = {tool: tally(results, tool) for tool in tools}
    rows = {tool: _rows(scores[tool]) for tool in tools}
    blocks = [f"## {part.capitalize()} part\n"]
    if left_out := [name for name in TOOLS if name not in tools]:
        blocks.append(f"Not asked for, or not installed: {', '.join(left_out)}.\n")
    figures = [[name, *(rows[tool][name] for tool in tools)] for name in rows[tools[0]]]
    blocks.append(_table(["", *tools], figures))
    if part == "held-out":
        return "\n".join(blocks)
    blocks.append(f"### {part.capitalize()} part by class: cases with culprits and code right\n")
    classes = [
        [fault, *("{} of {}".format(*scores[tool].classes[fault]) for tool in tools)]
        for fault in sorted(scores[tools[0]].classes)
    ]
    blocks.append(_table(["class", *tools], classes))
    if "unhang" in tools:
        blocks += [_missed(scores["unhang"]), _confused(part, scores["unhang"])]
    return "\n".join(block for block in blocks if block)


def _confused(part: str, score: Score) -> str:
    """Where we are wrong, by class and by case."""
    worst = sorted(score.classes, key=lambda name: score.classes[name][0] / score.classes[name][1])
    rows = []
    for fault in worst[:_WORST]:
        right, total = score.classes[fault]
        if right == total:
            continue
        said = ", ".join(
            f"{code} x{count}"
            for (name, code), count in score.confusion.most_common()
            if name == fault
        )
        rows.append([fault, f"{total - right} of {total}", said])
    if not rows:
        return "All right.\n"
    text = f"### Where unhang is wrong in the {part} part\n\n" + _table(
        ["class", "wrong", "what it said"], rows
    )
    return text + "\nCases: " + ", ".join(f"`{name}`" for name in score.wrong) + "\n"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"
