"""Nothing decides by a sentence: outside the messages no text of ours is compared or searched.

A sentence is for people and changes with its wording; what has to be asked later is a fact, in a
field or an enum. Texts that others wrote (a line of a log, an exception's message) are evidence,
and are read in `logs` and `stacks`, which this test leaves alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "unhang"
FOLDERS = ("analysis", "run", "reports")
MESSAGES = ("analysis/words/", "analysis/rules/telling.py")
"""Where sentences are made: folding equal ones there is how they are told once."""
FINDINGS = "analysis/rules/"
"""Files that hold facts, rule and words: of these, what returns text or `Words` makes sentences."""

TEXTS = frozenset(
    {"text", "summary", "error", "says", "within", "why", "meaning", "alternatives", "actions"}
)
"""Attributes of findings, notes, samples and decisions that hold sentences."""

SEARCHES = frozenset(
    {"startswith", "endswith", "find", "rfind", "index", "partition", "rpartition", "split",
     "count", "removeprefix", "removesuffix", "search", "match", "fullmatch", "findall"}
)  # fmt: skip

EXCEPTIONS = {
    "analysis/lives/ended.py: end.error == first.error": (
        "the program's own exception, not a text of ours: equal ones are one failure of several"
    ),
    "reports/content/folding.py: folded[note.level, _NUMBER.sub('*', note.text)]": (
        "notes that differ in their numbers alone are one line with a count"
    ),
    "reports/content/folding.py: len({note.text for note in notes}) > 1": (
        "whether a note is told once for several sources, or each with its own text"
    ),
    "reports/content/story.py: finding.summary == report.summary": (
        "a sentence that the page has just told is not told again"
    ),
    "run/docket.py: (before.summary, before.decision) != told": (
        "a verdict is shown again only where a reader would see another one"
    ),
}
"""Comparisons that are about telling a thing once, and decide nothing else."""

BEING_MENDED = frozenset({"analysis/sources/stacks.py"})
"""Modules that still ask one of our sentences how a process ended."""


def constants_of(tree: ast.Module) -> dict[str, ast.expr]:
    """What the module's own names stand for, as far as one assignment tells."""
    named = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            named[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            named[node.target.id] = node.value
    return named


def strings_in(node: ast.expr, constants: dict[str, ast.expr]) -> Iterator[str]:
    """The literals that are compared: themselves, in a tuple, or by a name of the module."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        for each in node.elts:
            yield from strings_in(each, constants)
    elif isinstance(node, ast.Name) and node.id in constants:
        rest = {name: value for name, value in constants.items() if name != node.id}
        yield from strings_in(constants[node.id], rest)


def is_wording(literal: str) -> bool:
    """Whether it is a phrase: words with a space between or at an end ("in ", "it ended")."""
    return re.search(r"[A-Za-z]{2,} +[A-Za-z]{2,}|^ ?[a-z]{2,} $", literal) is not None


def asked(node: ast.AST) -> list[ast.expr] | None:
    """What a node compares or searches, or takes for a key; None where it does none of these."""
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        searched = node.func.attr in SEARCHES
        return [node.func.value, *node.args] if searched else None
    if isinstance(node, ast.Subscript):
        return [node.slice]
    is_key = isinstance(node, ast.Assign) and "key" in ast.unparse(node.targets[0])
    return [node.value] if is_key and isinstance(node, ast.Assign) else None


def texts_in(node: ast.expr) -> Iterator[str]:
    """Attributes that hold sentences: `look.says`, not `look.meaning.kind` or `len(f.actions)`."""
    if isinstance(node, ast.Attribute):
        if node.attr in TEXTS:
            yield node.attr
    elif not (isinstance(node, ast.Call) and ast.unparse(node.func) in ("len", "bool")):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from texts_in(child)
            elif isinstance(child, ast.comprehension):
                yield from texts_in(child.iter)
    elif any(isinstance(each, ast.SetComp) for each in node.args):
        yield from texts_in(node.args[0])


def compared(tree: ast.Module) -> Iterator[str]:
    """Every place of a module at which a sentence decides."""
    constants = constants_of(tree)
    for node in ast.walk(tree):
        parts = asked(node)
        if parts is None:
            continue
        own = any(True for part in parts for _ in texts_in(part))
        worded = not isinstance(node, (ast.Assign, ast.Subscript)) and any(
            is_wording(text) for part in parts for text in strings_in(part, constants)
        )
        if own or worded:
            yield ast.unparse(node)


def without_messages(tree: ast.Module) -> ast.Module:
    """A module without its functions that make sentences."""
    kept = [
        node
        for node in tree.body
        if not isinstance(node, ast.FunctionDef)
        or not re.search(r"\b(?:str|Words)\b", ast.unparse(node.returns or ast.Constant(None)))
    ]
    return ast.Module(kept, [])


def test_only_messages_are_left_out() -> None:
    """A rule that decides by a sentence is found in the file of its finding, too."""
    rule = "def _claims(facts) -> Iterator[Claim]:\n    return facts.says == 'is busy now'\n"
    words = "def _told(about) -> tuple[str, ...]:\n    return places[about.says]\n"
    assert list(compared(without_messages(ast.parse(rule + words)))) == [
        "facts.says == 'is busy now'"
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_sentence_decides(folder: str) -> None:
    """What is asked later is a fact; each exception has its reason."""
    found = set()
    for path in sorted((SRC / folder).rglob("*.py")):
        name = path.relative_to(SRC).as_posix()
        if not name.startswith(MESSAGES) and name not in BEING_MENDED:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            if name.startswith(FINDINGS):
                tree = without_messages(tree)
            found |= {f"{name}: {place}" for place in compared(tree)}
    known = {place for place in EXCEPTIONS if place.startswith(f"{folder}/")}
    assert found == known, "a fact is missing, or an exception is no longer needed"


@pytest.mark.parametrize(
    "code",
    [
        'last.error.startswith("it ended")',
        'BEGIN = ("in ", "at ")\nlines[0].startswith(BEGIN)',
        'link.why == "not known"',
        '"no dump" in line',
        "groups[look.says, look.gone].append(look)",
        "key = (look.meaning.op or look.says, look.site)",
        "same = finding.summary == other.summary",
        "several = len({note.text for note in notes}) > 1",
        're.search("stuck in", words)',
    ],
)
def test_a_sentence_that_decides_is_found(code: str) -> None:
    """As the house had them once, and a few more."""
    assert len(list(compared(ast.parse(code)))) == 1


@pytest.mark.parametrize(
    "code",
    [
        'look.meaning.kind == "device-sync"',
        "len(finding.actions) > 3",
        'name.endswith(".py")',
        'text = "waits in the call" + rest',
        'WHY[Edge.UNKNOWN] = "not known"',
        "key = (look.meaning.op, look.site)",
    ],
)
def test_facts_are_left_alone(code: str) -> None:
    """Enums, names and numbers are what decisions are made of."""
    assert list(compared(ast.parse(code))) == []
