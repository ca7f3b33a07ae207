"""Blocking sends and receives that wait for each other become one batch.

Only a send and a receive that follow each other directly, where neither reads what the other
writes: a chain, in which what is sent comes of what was received, stays as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Final

from unhang.fixing.patterns.script import Patch, Script, by_place

_WANTED: Final = frozenset({"torch.distributed.send", "torch.distributed.recv"})
_PLACES: Final = {
    "send": ("tensor", "dst", "group", "tag"),
    "recv": ("tensor", "src", "group", "tag"),
}


def exchanged(script: Script, lines: Sequence[int]) -> Iterator[Patch | str]:
    """The script with the exchanges at some lines as batches, or why not."""
    changes, found = [], []
    for line in sorted(set(lines)):
        pair = _pair(script, line)
        if pair is None or pair in found:
            continue
        found.append(pair)
        if _chained(*pair):
            yield f"what line {pair[1].lineno} sends or receives comes of line {pair[0].lineno}"
            return
        batch = _batch(script, pair)
        if batch is None:
            where = f"line {pair[0].lineno} or {pair[1].lineno}"
            yield f"{where} has arguments that a batch cannot take"
            return
        changes.append((pair[0].lineno, by_place(pair[1])[1], batch))
    if changes:
        where = ", ".join(str(first) for first, _, _ in changes)
        why = f"Sends and receives at line {where} start together, as one batch."
        yield Patch(script.path, script.replaced(changes), why)


def _pair(script: Script, line: int) -> tuple[ast.stmt, ast.stmt] | None:
    """The send and the receive that follow each other, one of them at a line."""
    blocks = script.blocks(line)
    if not blocks:
        return None
    inner = blocks[0]
    for start in (inner.place, inner.place - 1):
        two = inner.statements[max(start, 0) : start + 2]
        kinds = {_kind(script, each) for each in two}
        if start >= 0 and kinds == {"send", "recv"}:
            return two[0], two[1]
    return None


def _kind(script: Script, statement: ast.stmt) -> str:
    call = statement.value if isinstance(statement, ast.Expr) else None
    name = script.name_of(call.func) if isinstance(call, ast.Call) else ""
    return name.rpartition(".")[2] if name in _WANTED else ""


def _arguments(statement: ast.stmt, kind: str) -> dict[str, ast.expr] | None:
    call = statement.value  # type: ignore[attr-defined] # `_kind` has seen that it is a call
    if any(isinstance(each, ast.Starred) for each in call.args):
        return None
    given = dict(zip(_PLACES[kind], call.args, strict=False))
    return given | {each.arg: each.value for each in call.keywords}


def _chained(first: ast.stmt, second: ast.stmt) -> bool:
    """Whether both name one variable as their tensor, so that order decides what travels."""
    names = [
        {node.id for node in ast.walk(_tensor(each)) if isinstance(node, ast.Name)}
        for each in (first, second)
    ]
    modules = {"torch"}
    return bool((names[0] & names[1]) - modules)


def _tensor(statement: ast.stmt) -> ast.expr:
    call = statement.value  # type: ignore[attr-defined] # as above
    named = next((each.value for each in call.keywords if each.arg == "tensor"), None)
    tensor: ast.expr = named or call.args[0]
    return tensor


def _batch(script: Script, pair: tuple[ast.stmt, ast.stmt]) -> str | None:
    """The lines of a batch, the send first."""
    calls = [
        _operation(script, each) for each in sorted(pair, key=lambda s: _kind(script, s) != "send")
    ]
    if None in calls:
        return None
    indent = " " * pair[0].col_offset
    home = _home(pair[0])
    inside = "".join(f"{indent}    {call},\n" for call in calls)
    return (
        f"{indent}for work in {home}batch_isend_irecv([\n{inside}{indent}]):\n"
        f"{indent}    work.wait()\n"
    )


def _home(statement: ast.stmt) -> str:
    """How the script names torch.distributed in a call, with its dot."""
    func = statement.value.func  # type: ignore[attr-defined] # as above
    return f"{ast.unparse(func.value)}." if isinstance(func, ast.Attribute) else ""


def _operation(script: Script, statement: ast.stmt) -> str | None:
    kind = _kind(script, statement)
    given = _arguments(statement, kind)
    side = "dst" if kind == "send" else "src"
    home = _home(statement)
    if given is None or not home or None in given or "tensor" not in given:
        return None
    if side not in given and f"group_{side}" not in given:
        return None
    words = [f"{home}i{kind}", ast.unparse(given["tensor"])]
    if side in given:
        words.append(ast.unparse(given[side]))
    more = {"group": "group", "tag": "tag", f"group_{side}": "group_peer"}
    words += [f"{new}={ast.unparse(given[old])}" for old, new in more.items() if old in given]
    return f"{home}P2POp({', '.join(words)})"
