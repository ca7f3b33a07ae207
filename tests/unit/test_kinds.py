"""What is known of a kind stands in one place: in the catalogue, or in the row that is the kind."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_floors import MODULES, imports_of

from unhang.analysis.rules.order import RULES as ASKED
from unhang.analysis.rules.rule import Rule
from unhang.catalogue import all_kinds, kind_of
from unhang.checks import CHECKS
from unhang.kinds import FAMILIES, KINDS, Kind, Trait
from unhang.logs.rules import RULES
from unhang.report import Finding
from unhang.reports.content.kind_pages import page_of

SRC = Path(__file__).parents[2] / "src" / "unhang"
TABLES = ("checks.py", "logs/rules/")


def named_codes(path: Path) -> Iterator[str]:
    """Yield the codes that a file names as strings of their own; prose may speak of codes.

    Where a kind is declared, its code is its first argument.
    """
    text = path.read_text()
    tree = ast.parse(text if "UH" in text else "")
    own = {
        id(node.args[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Kind" and node.args
    }
    for node in ast.walk(tree):
        if id(node) in own:
            continue
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, str) and re.fullmatch(r"UH\d+", value):
            yield f"{value} in line {node.lineno}"


def test_no_code_stands_outside_the_tables() -> None:
    """Kinds are named by their constants: a code in the source is another table of kinds."""
    found = {
        name: codes
        for path in sorted(SRC.rglob("*.py"))
        if not (name := path.relative_to(SRC).as_posix()).startswith(TABLES)
        and (codes := list(named_codes(path)))
    }
    assert found == {}


@pytest.mark.parametrize("kind", all_kinds().values(), ids=lambda k: k.code)
def test_every_kind_is_whole(kind: Kind) -> None:
    """A code of three or four digits, a slug, a family and a sentence; its finding has them too."""
    assert re.fullmatch(r"UH\d{3,4}", kind.code)
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", kind.slug)
    assert kind.family in FAMILIES
    assert kind.meaning.endswith(".")
    assert kind_of(kind.code) == kind
    finding = Finding("f1", kind.code, kind.role, "low", kind.meaning)
    assert (finding.slug, finding.family) == (kind.slug, kind.family)


def test_the_tables_share_no_code_and_no_slug() -> None:
    """A code and a slug belong to one kind for ever."""
    kinds = [*KINDS.values(), *(rule.kind for rule in RULES), *(c.kind for c in CHECKS.values())]
    assert len({kind.code for kind in kinds}) == len({kind.slug for kind in kinds}) == len(kinds)


def test_a_code_that_nobody_has() -> None:
    """A report of a later version keeps the slug that it tells, and has no family here."""
    assert kind_of("UH9999") is None
    finding = Finding("f1", "UH9999", "observation", "low", "x", slug="of-tomorrow")
    assert (finding.slug, finding.family) == ("of-tomorrow", "")


def test_a_hint_is_an_observation() -> None:
    """What a log rule calls a hint or noise is no role of a finding."""
    assert {rule.kind.role for rule in RULES if rule.role in ("hint", "noise")} == {"observation"}


def test_checks_are_known_independently() -> None:
    """All checks looked for themselves; those of settings say nothing of the way between ranks."""
    assert all(check.kind.has(Trait.CHECKED) for check in CHECKS.values())
    off = {check.part for check in CHECKS.values() if not check.kind.has(Trait.ON_THE_WAY)}
    assert off == {"env"}
    assert not any(kind.has(Trait.CHECKED) for kind in KINDS.values())


FINDINGS = sorted((SRC / "analysis" / "rules").glob("*.py"))
MECHANISM = ("__init__", "causes", "order", "reason", "rule", "telling", "telling_looks")


def test_every_file_of_a_finding_is_asked() -> None:
    """By the list of rules, or for a root of the waiting, by itself or by another finding."""
    folder, _, _ = Rule.__module__.rpartition(".")
    own = {f"{folder}.{path.stem}" for path in FINDINGS if path.stem not in MECHANISM}
    asks = [f for rule in ASKED for f in (rule.tells, *(each.sees for each in rule.observers))]
    asked = {f.__module__ for f in asks}
    for place in ("rules/causes.py", "steps.py"):
        asked |= imports_of(SRC / "analysis" / place)
    asked = {name for name in asked if name.startswith(folder)}
    asked |= {each for name in asked for each in imports_of(MODULES[name])} & own
    assert own == asked - {f"{folder}.{name}" for name in MECHANISM}


def test_kinds_that_files_declare_are_in_the_catalogue() -> None:
    """kinds.json is what `python docs/refresh.py` makes of them."""
    declared = {rule.kind.code: rule.kind for rule in ASKED if rule.kind is not None}
    made = json.loads((SRC / "kinds.json").read_text(encoding="utf-8"))
    assert {row["code"] for row in made} >= declared.keys(), "run: python docs/refresh.py"
    assert {code: KINDS[code] for code in declared} == declared, "run: python docs/refresh.py"


@pytest.mark.parametrize("code", KINDS)
def test_every_kind_of_the_catalogue_has_a_page(code: str) -> None:
    """Written by hand, or made of the docstring of the file of its finding."""
    page = (SRC.parents[1] / "docs" / "codes" / f"{code}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {code} {KINDS[code].slug}\n\n{KINDS[code].meaning}\n")
    assert "\n## What it rests on\n" in page
    assert "<!--" not in page_of(KINDS[code]), "marks of what is made are no part of what is read"
