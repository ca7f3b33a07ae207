"""Two branches that make the same calls in another order: the second gets the first's order."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from unhang.fixing.patterns.script import Patch, Script, by_place, shifted


def reordered(script: Script, lines: Sequence[int]) -> Iterator[Patch | str]:
    """The script with the calls at some lines in one order on all branches."""
    for branch in _branches(script.tree, lines):
        runs = [run for run in (_run(script, body, lines) for body in _bodies(branch)) if run]
        for other in runs[1:]:
            if _texts(runs[0]) != _texts(other) and sorted(_texts(runs[0])) == sorted(
                _texts(other)
            ):
                yield _as_first(script, runs[0], other)


def _branches(tree: ast.AST, lines: Sequence[int]) -> Iterator[ast.If]:
    """Statements `if` that hold at least two of the lines; inner ones first."""
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        and sum(by_place(node)[0] <= line <= by_place(node)[1] for line in set(lines)) > 1
    ]
    yield from sorted(found, key=lambda node: by_place(node)[1] - by_place(node)[0])


def _bodies(branch: ast.If) -> Iterator[list[ast.stmt]]:
    """The bodies of an `if`, of its `elif`s and of its `else`."""
    yield branch.body
    if len(branch.orelse) == 1 and isinstance(branch.orelse[0], ast.If):
        yield from _bodies(branch.orelse[0])
    elif branch.orelse:
        yield branch.orelse


def _run(script: Script, body: list[ast.stmt], lines: Sequence[int]) -> list[ast.stmt]:
    """Calls of torch.distributed's one behind the other, with one of the lines in them."""
    runs: list[list[ast.stmt]] = [[]]
    for each in body:
        if script.is_collective(each):
            runs[-1].append(each)
        else:
            runs.append([])
    hit = (
        run
        for run in runs
        if len(run) > 1 and any(run[0].lineno <= line <= by_place(run[-1])[1] for line in lines)
    )
    return next(hit, [])


def _texts(run: list[ast.stmt]) -> list[str]:
    return [ast.unparse(each) for each in run]


def _as_first(script: Script, first: list[ast.stmt], other: list[ast.stmt]) -> Patch:
    text = script.written(first[0].lineno, by_place(first[-1])[1])
    start, end = other[0].lineno, by_place(other[-1])[1]
    changed = script.replaced([(start, end, shifted(text, other[0].col_offset))])
    where = f"{Path(script.path).name}:{start}"
    return Patch(script.path, changed, f"Both branches make their calls in one order ({where}).")
