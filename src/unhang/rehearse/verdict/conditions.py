"""Under which condition a line of a script stands, as its source says."""

from __future__ import annotations

import ast
import functools
import linecache


def conditions_of(file: str, line: int) -> tuple[str, ...] | None:
    """The conditions under which a line of a function is come to; outermost first.

    These are the `if` statements around it, and those before it that leave its block.

    Returns:
        None where the source cannot be read.
    """
    tree = _tree(file)
    return _around(tree, line, ()) if tree else None


@functools.lru_cache(maxsize=64)
def _tree(file: str) -> ast.Module | None:
    lines = linecache.getlines(file)
    try:
        return ast.parse("".join(lines)) if lines else None
    except (SyntaxError, ValueError, RecursionError):
        return None


def _around(node: ast.AST, line: int, above: tuple[str, ...]) -> tuple[str, ...]:
    """Conditions down to a line, which one child of every node holds."""
    for _, value in ast.iter_fields(node):
        block, before = value if isinstance(value, list) else [value], above
        for child in block:
            first, last = getattr(child, "lineno", 0), getattr(child, "end_lineno", 0) or 0
            if isinstance(child, ast.AST) and first <= line <= last:
                return _within(child, line, before)
            if isinstance(child, ast.If) and _leaves(child):
                before = (*before, f"not ({ast.unparse(child.test)})")
    return above


def _within(node: ast.AST, line: int, above: tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return _around(node, line, ())  # who calls it is decided at its callers
    if isinstance(node, ast.If) and line > (node.test.end_lineno or 0):
        above = (*above, ast.unparse(node.test))
    return _around(node, line, above)


def _leaves(branch: ast.If) -> bool:
    """Whether what follows it is come to only where its condition does not hold."""
    ends = ast.Return | ast.Continue | ast.Break | ast.Raise
    return isinstance(branch.body[-1], ends) and not branch.orelse
