"""Under which condition a line of a script stands, as its source says."""

from __future__ import annotations

import ast
import functools
import linecache


def conditions_of(file: str, line: int) -> tuple[str, ...] | None:
    """The conditions of the `if` statements around a line, within its function; outermost first.

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
    for child in ast.iter_child_nodes(node):
        first, last = getattr(child, "lineno", 0), getattr(child, "end_lineno", 0) or 0
        if not first <= line <= last:
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return _around(child, line, ())  # who calls it is decided at its callers
        if isinstance(child, ast.If) and line > (child.test.end_lineno or 0):
            above = (*above, ast.unparse(child.test))
        return _around(child, line, above)
    return above
