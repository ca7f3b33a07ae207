"""Batches that do not come out even between ranks: the loop runs under the model's `join()`.

torch's Join lets ranks that are through shadow the calls of the others. Only a loop that calls a
model of DistributedDataParallel and runs its backward pass, in which some ranks wait while the
others are behind it, or make no call at all any more. It would hide other faults: ranks that all
are in the loop disagree about something else.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from unhang.fixing.patterns.script import Patch, Script, by_place

_PARALLEL: Final = "torch.nn.parallel"
_NAME: Final = "DistributedDataParallel"


def joined(script: Script, line: int, others: Iterable[int]) -> Iterator[Patch | str]:
    """The script with the loop at a line joined, once for each model that it may call.

    Args:
        script: It.
        line: Where some ranks wait.
        others: The lines of all other ranks.
    """
    loops = [b.statement for b in script.blocks(line) if isinstance(b.statement, ast.For)]
    if not loops or not _wraps(script):
        return
    loop = loops[0]
    first, last = by_place(loop)
    if any(first <= other <= last for other in others):
        return
    if not any(_is_backward(node) for node in ast.walk(loop)):
        return
    if loop.orelse:
        yield f"the loop at line {loop.lineno} has an `else`"
        return
    for model in _models(loop):
        indent = " " * loop.col_offset
        body = "".join(
            f"    {each}" if each.strip() else each for each in script.lines[first - 1 : last]
        )
        text = f"{indent}with {model}.join():\n{body}"
        why = f"Ranks with fewer batches take part in what the loop at line {first} still calls."
        yield Patch(script.path, script.replaced([(first, last, text)]), why)


def _wraps(script: Script) -> bool:
    """Whether the file makes a model of DistributedDataParallel."""
    calls = (node for node in ast.walk(script.tree) if isinstance(node, ast.Call))
    names = (script.name_of(call.func) for call in calls)
    return any(name.startswith(_PARALLEL) and name.endswith(_NAME) for name in names)


def _is_backward(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "backward"
    )


def _models(loop: ast.For) -> list[str]:
    """What the loop calls as a function with an argument: the model is among these."""
    calls = [node for node in ast.walk(loop) if isinstance(node, ast.Call) and node.args]
    plain = [ast.unparse(call.func) for call in calls if _is_model(call.func)]
    likely = sorted(
        dict.fromkeys(plain), key=lambda name: "model" not in name and "ddp" not in name
    )
    return likely[:2]


def _is_model(func: ast.expr) -> bool:
    """A name, or an attribute of `self`."""
    if isinstance(func, ast.Attribute):
        return isinstance(func.value, ast.Name) and func.value.id == "self"
    return isinstance(func, ast.Name) and not hasattr(__builtins__, func.id)
