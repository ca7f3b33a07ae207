"""Stacks for other programs: collapsed lines for flame graphs, a file for speedscope.

A width is the number of ranks, not time. Formats: Brendan Gregg's collapsed stacks ("a;b;c 7") and
speedscope's file format (https://www.speedscope.app/file-format-schema.json), "sampled" profiles.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from unhang.model import Frame
from unhang.stacks.tree.gathering import FACT, FOLD
from unhang.stacks.tree.prefix_tree import ROOT, StackTree

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def collapsed(tree: StackTree) -> str:
    """One line a distinct stack: frames joined by semicolons, then the number of ranks."""
    lines: list[str] = []
    for path, members in _stacks(tree, ROOT):
        frames = ";".join(_name(frame) for frame in path)
        lines.append(f"{frames} {members}\n")
    return "".join(sorted(lines))


def _name(frame: Frame) -> str:
    place = f" ({frame.file}:{frame.line})" if frame.line else ""
    text = f"{frame.function}{place}"
    return "".join("_" if c == ";" or not c.isprintable() else c for c in text)


def _stacks(tree: StackTree, top: int) -> Iterator[tuple[list[Frame], int]]:
    """Distinct stacks below a node with how many ranks have them."""
    todo: list[tuple[int, list[Frame]]] = [(top, [])]
    while todo:
        node, path = todo.pop()
        if count := len(tree.ends(node)):
            yield path, count
        for child in reversed(tree.children(node)):
            frame = tree.frame_of(child)
            todo.append((child, path if frame.file == FOLD else [*path, frame]))


def speedscope(tree: StackTree, name: str) -> str:
    """A speedscope file: one profile a lane, one sample a distinct stack, as wide as its ranks."""
    numbers: dict[Frame, int] = {}
    profiles = [_profile(tree, lane, numbers) for lane in tree.children(ROOT)]
    frames = [
        {"name": frame.function, "file": frame.file, "line": frame.line}
        if frame.line
        else {"name": f"= {frame.function}" if frame.file == FACT else frame.function}
        for frame in numbers
    ]
    document = {
        "$schema": _SCHEMA,
        "name": name,
        "exporter": "unhang",
        "shared": {"frames": frames},
        "profiles": profiles,
    }
    return json.dumps(document, indent=1) + "\n"


def _profile(tree: StackTree, lane: int, numbers: dict[Frame, int]) -> dict[str, object]:
    samples: list[list[int]] = []
    weights: list[int] = []
    for path, members in _stacks(tree, lane):
        samples.append([numbers.setdefault(frame, len(numbers)) for frame in path])
        weights.append(members)
    return {
        "type": "sampled",
        "name": tree.frame_of(lane).function,
        "unit": "none",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }
