"""A collective under a rank's condition: the call moves out of the `if`.

Only a call of torch.distributed's that is a statement of its own, directly under an `if` that asks
for the rank, and whose arguments call nothing that could do more than compute.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from unhang.fixing.patterns.script import Patch, Script, StatementList, by_place, shifted

_RANK: Final = re.compile(
    r"rank|is_(?:local_)?main|is_master|is_leader|is_chief|is_first|main_process"
)
"""What an expression that asks for the rank has in one of its names."""
_PLAIN: Final = frozenset(
    {"arange", "clone", "contiguous", "cpu", "cuda", "detach", "device", "empty", "empty_like"}
    | {"argmax", "argmin", "cat"}
    | {"flatten", "float", "full", "get_group", "get_rank", "get_world_size", "int", "item", "len"}
    | {"list", "max", "mean", "min", "named_parameters", "ones", "ones_like", "parameters"}
    | {"range", "reshape", "size", "state_dict", "sum", "tensor", "to", "tuple", "view", "zeros"}
    | {"zeros_like", "sigmoid", "softmax", "squeeze", "stack", "unsqueeze", "StateDictOptions"}
)
"""Functions and methods that compute and do nothing else, wherever ranks call them."""


def hoisted(script: Script, line: int) -> Iterator[Patch | str]:
    """The script with the call at a line made by all ranks, or why not."""
    blocks = script.blocks(line)
    if not blocks or not script.is_collective(blocks[0].statement):
        return
    inner = blocks[0]
    branch = inner.owner
    if not isinstance(branch, ast.If) or not _asks_for_rank(branch.test):
        return
    where = f"line {inner.statement.lineno}"
    if inner.statements is not branch.body or not _is_if(script, branch):
        yield f"{where} stands under an `else` or `elif`"
    elif (name := _other_call(inner.statement)) is not None:
        yield f"an argument of {where} calls {name}, which may do more than compute"
    elif (rest := _without_rank(branch.test)) is None:
        yield f"the condition of {where} mixes the rank with `or`"
    else:
        why = (
            f"All ranks call {_called(inner.statement)} ({where}), not those of a condition alone."
        )
        yield Patch(script.path, _moved(script, branch, inner, rest), why)


def _asks_for_rank(test: ast.expr) -> bool:
    names = (getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(test))
    return any(_RANK.search(name.lower()) for name in names if isinstance(name, str))


def _is_if(script: Script, branch: ast.If) -> bool:
    return script.lines[branch.lineno - 1].lstrip().startswith("if ")


def _other_call(statement: ast.stmt) -> str | None:
    """The first function that the call's arguments call and that is not known to be plain."""
    value = getattr(statement, "value", None)
    if not isinstance(value, ast.Call):
        return "another function"
    inner = [*value.args, *(each.value for each in value.keywords)]
    if isinstance(value.func, ast.Attribute):
        inner.append(value.func.value)
    calls = (node for each in inner for node in ast.walk(each) if isinstance(node, ast.Call))
    names = (getattr(c.func, "attr", getattr(c.func, "id", "another function")) for c in calls)
    return next((name for name in names if name not in _PLAIN), None)


def _called(statement: ast.stmt) -> str:
    value = getattr(statement, "value", None)
    return ast.unparse(value.func) if isinstance(value, ast.Call) else "it"


def _without_rank(test: ast.expr) -> str | None:
    """What is left of a condition without the part that asks for the rank; None where unclear."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    asking = [part for part in parts if _asks_for_rank(part)]
    if any(isinstance(part, ast.BoolOp) for part in asking):
        return None
    return " and ".join(ast.unparse(part) for part in parts if part not in asking)


def _moved(script: Script, branch: ast.If, inner: StatementList, rest: str) -> str:
    """The `if` with the statement before, behind or between its two parts."""
    first, last = by_place(branch)
    indent = branch.col_offset
    header = script.written(first, branch.body[0].lineno - 1)
    call = _alone(script, inner.statement, indent, rest)
    before, behind = inner.statements[: inner.place], inner.statements[inner.place + 1 :]
    parts = []
    if before:
        parts.append(header + script.written(branch.body[0].lineno, _end(before)))
    parts.append(call)
    end = by_place(inner.statement)[1]
    if behind:
        parts.append(header + script.written(end + 1, last))
    elif branch.orelse:
        parts.append(_otherwise(script, branch, end, last, has_body=bool(before)))
        if before:
            parts = [parts[0], parts[2], call]
    return script.replaced([(first, last, "".join(parts))])


def _end(statements: list[ast.stmt]) -> int:
    return by_place(statements[-1])[1]


def _alone(script: Script, statement: ast.stmt, indent: int, rest: str) -> str:
    """The statement at another indent, under what is left of the condition."""
    first, last = by_place(statement)
    text = script.written(first, last)
    if script.lines[first - 1][: statement.col_offset].strip():  # on the line of its `if`
        text = text[statement.col_offset :]
    if not text.endswith("\n"):
        text += "\n"
    if not rest:
        return shifted(text, indent)
    return f"{' ' * indent}if {rest}:\n{shifted(text, indent + 4)}"


def _otherwise(script: Script, branch: ast.If, end: int, last: int, *, has_body: bool) -> str:
    """The `else` part: behind the body that is left, or as an `if` of its own."""
    text = script.written(end + 1, last)
    if has_body:
        return text
    return f"{' ' * branch.col_offset}if not ({ast.unparse(branch.test)}):\n" + "".join(
        text.splitlines(keepends=True)[1:]
    )
