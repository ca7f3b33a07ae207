"""Imports only ever go down the five floors; `record` stands apart."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "unhang"

FLOORS = {
    "cli": 5, "__main__": 5,
    "run": 4, "doctor": 4, "serve": 4, "numerics": 4,
    "ingest": 3, "collect": 3, "analysis": 3, "tables": 3, "reports": 3, "cores": 3,
    "trace": 3, "casedir": 2, "surroundings": 2, "telltale": 1,
    "batches": 2, "case": 2, "casebuilder": 2, "report": 2, "stacks": 2, "logs": 2, "redact": 2,
    "model": 1, "kinds": 1, "errors": 1, "wording": 1, "bounds": 1, "_version": 0,
    "checks": 1, "rankenv": 1, "catalogue": 2,
}  # fmt: skip
APART = {"record", "testing", "__init__", "pausing", "printing"}
SEPARATE = {"ingest", "analysis", "reports"}
LIGHT = {
    "model",
    "kinds",
    "checks",
    "rankenv",
    "errors",
    "wording",
    "bounds",
    "_version",
    "telltale",
}


def house_of(path: Path) -> str:
    """The floor's name of a file: its top package, or its own name."""
    relative = path.relative_to(SRC)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports_of(path: Path) -> set[str]:
    """Names of the unhang packages that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == "unhang":
                names = [f"unhang.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("unhang.")}
    return found


FILES = sorted(SRC.rglob("*.py"))
STEPS_OF_INGEST = {
    "discover": 0, "columns": 0, "pickles": 0, "jsonfile": 0, "savedreports": 1, "dumpfiles": 1,
    "fast": 1, "reading": 2, "beside": 2, "groups": 2, "incidents": 2, "assemble": 3, "loading": 4,
    "__init__": 5,
}  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SRC)))
def test_the_product_never_imports_the_lab(path: Path) -> None:
    """The lab lies beside the product and outside the wheel."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        assert not [name for name in names if name.split(".")[0] == "lab"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SRC)))
def test_imports_go_down(path: Path) -> None:
    """No file imports from a floor above its own, nor from a room it must not know."""
    home = house_of(path)
    if home in APART:
        return
    assert home in FLOORS, f"{home} has no floor: give it one here and in ARCHITECTURE.md"
    for target in imports_of(path) - {home, "__version__"}:
        if target == "record":
            continue
        assert FLOORS.get(target, 0) <= FLOORS[home], f"{home} must not import {target}"
        both = {home, target}
        assert not (len(both) == 2 and both <= SEPARATE), f"{home} must not know {target}"


@pytest.mark.parametrize(
    "path", [p for p in FILES if house_of(p) == "record"], ids=lambda p: p.name
)
def test_the_recorder_stands_alone(path: Path) -> None:
    """`unhang.record` runs in somebody's job: of the rest, it imports two tables alone."""
    assert imports_of(path) <= {"record", "_version", "telltale", "rankenv"}


@pytest.mark.parametrize("name", sorted(LIGHT))
def test_the_ground_floor_is_light(name: str) -> None:
    """The ground floor needs the standard library only."""
    tree = ast.parse((SRC / f"{name}.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            assert node.module.split(".")[0] in {"unhang", "__future__", "collections",
                                                  "dataclasses", "enum",
                                                  "functools", "typing"}  # fmt: skip


@pytest.mark.parametrize("path", sorted((SRC / "ingest").rglob("*.py")), ids=lambda p: p.name)
def test_ingest_reads_downwards(path: Path) -> None:
    """From `load` to the bytes: what a step imports of ingest comes before it."""
    home = path.relative_to(SRC / "ingest").parts[0].removesuffix(".py")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("unhang.ingest."):
            target = str(node.module).split(".")[2]
            assert target == home or STEPS_OF_INGEST[target] < STEPS_OF_INGEST[home]
