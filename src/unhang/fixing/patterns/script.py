"""A script as lines and as a tree: which statement stands at a line, and what it calls.

Names are read as the file's own imports give them. It refuses to follow values.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

_COLLECTIVE_METHODS = frozenset(
    {"full_tensor", "redistribute", "wait_for_everyone", "gather_for_metrics"}
    | {"pad_across_processes", "save_state"}
)
"""Methods of DTensors and of accelerate's Accelerator that every rank has to call."""


@dataclass(frozen=True, slots=True)
class Patch:
    """Other lines for a script.

    Attributes:
        path: The script.
        text: All of it, as it would be.
        why: What was changed, as one sentence.
    """

    path: str
    text: str
    why: str


@dataclass(frozen=True, slots=True)
class StatementList:
    """A list of statements in which one was looked for.

    Attributes:
        owner: The statement that it belongs to.
        place: Of the statement, in the list.
    """

    owner: ast.AST
    statements: list[ast.stmt]
    place: int

    @property
    def statement(self) -> ast.stmt:
        """The statement."""
        return self.statements[self.place]


@dataclass(frozen=True)
class Script:
    """One file of the user's.

    Raises:
        SyntaxError: It is no Python.
    """

    path: str
    text: str
    tree: ast.Module = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tree", ast.parse(self.text))

    @cached_property
    def lines(self) -> list[str]:
        """Its lines, with their ends."""
        return re.findall(r"[^\n]*\n|[^\n]+", self.text)  # not `splitlines`: Python counts newlines

    def blocks(self, line: int) -> list[StatementList]:
        """The lists of statements around a line, innermost first, within one function."""
        found: list[StatementList] = []
        node: ast.AST | None = self.tree
        while node is not None:
            node = _step(node, line, found)
        return found[::-1]

    def written(self, first: int, last: int) -> str:
        """Lines from a first to a last one, counted from 1."""
        return "".join(self.lines[first - 1 : last])

    def replaced(self, changes: list[tuple[int, int, str]]) -> str:
        """The text with other lines in the place of some: first, last, and what stands there."""
        lines = list(self.lines)
        for first, last, text in sorted(changes, reverse=True):
            lines[first - 1 : last] = [text]
        return "".join(lines)

    def name_of(self, call: ast.expr) -> str:
        """The full name of what is called, as the imports say; "" where it is no plain name."""
        parts: list[str] = []
        while isinstance(call, ast.Attribute):
            parts.append(call.attr)
            call = call.value
        if not isinstance(call, ast.Name):
            return ""
        return ".".join([self._imported.get(call.id, call.id), *parts[::-1]])

    def is_collective(self, node: ast.AST) -> bool:
        """Whether a statement is a call of torch.distributed's, and of nothing else."""
        call = getattr(node, "value", None) if isinstance(node, ast.Expr | ast.Assign) else None
        if not isinstance(call, ast.Call):
            return False
        name = self.name_of(call.func)
        method = isinstance(call.func, ast.Attribute) and call.func.attr in _COLLECTIVE_METHODS
        return name.startswith("torch.distributed.") or method

    @cached_property
    def _imported(self) -> dict[str, str]:
        """What names of modules and of their contents stand for."""
        found = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for each in node.names:
                    found[each.asname or each.name.partition(".")[0]] = (
                        each.name if each.asname else each.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for each in node.names:
                    found[each.asname or each.name] = f"{node.module}.{each.name}"
        return found


def _step(node: ast.AST, line: int, found: list[StatementList]) -> ast.AST | None:
    """The statement of a node's lists that holds a line; blocks of a function stay within it."""
    for statements in _lists(node):
        for place, each in enumerate(statements):
            if _first(each) <= line <= (each.end_lineno or each.lineno):
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    found.clear()
                else:
                    found.append(StatementList(node, statements, place))
                return each
    return None


def _first(statement: ast.stmt) -> int:
    decorators = getattr(statement, "decorator_list", [])
    first: int = min([statement.lineno, *(each.lineno for each in decorators)])
    return first


def _lists(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        value = getattr(node, name, None)
        if isinstance(value, list):
            yield value
    for handler in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
        yield handler.body


def by_place(statement: ast.stmt) -> tuple[int, int]:
    """First and last line of a statement."""
    return statement.lineno, statement.end_lineno or statement.lineno


def shifted(text: str, indent: int) -> str:
    """Lines of one block, with another indent."""
    return textwrap.indent(textwrap.dedent(text), " " * indent)
