"""A small seeded sample of what hostile nodes may send: nothing ends in an exception."""

from __future__ import annotations

import copy
import io
import json
import math
import random
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from unhang.casedir.manifest import merge_manifest
from unhang.collect.gather import Gathered, GatherPlan, gather
from unhang.collect.launchers import Launch, Program
from unhang.collect.launches import Delivery, _Intake
from unhang.collect.parcel import ParcelError, unpack, write_parcel
from unhang.ingest.beside import expected_ranks, read_manifests

ODD: tuple[object, ...] = (
    0, -1, 2**31 - 1, 2**63, 10**400, 1.5, math.inf, math.nan, True, None, "", "\x1b[31m", "\u202e",
    "\ud800", "../../E", "x" * 700, [], {}, [[]], [None], {"a": {"b": [1]}},
)  # fmt: skip
RANK = {"rank": 0, "host": "h", "pid": 7, "state": "S", "came": {"dump": "d"}, "missing": {}}
PART = {
    "run": "r", "host": "n", "job": "j", "attempt": 0, "world_size": 8, "command": "train.py",
    "time_ns": 5, "incident": {"id": "x", "time_ns": 5}, "timings_s": {"dumps": 1.0}, "streams": [],
    "notes": ["a"], "ranks": [RANK, {**RANK, "rank": 1}],
}  # fmt: skip
PATHS = ("part.json", "dumps/a/b", "dumps/a", "dumps/a/b/c", "../e", "/e", "dumps/" + "é" * 90)
TYPES = (tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.GNUTYPE_SPARSE, b"Z", b"x", b"L")


def dice_of(seed: int) -> random.Random:
    """The same throws every time."""
    return random.Random(seed)  # noqa: S311 - no secret


def places(value: object) -> Iterator[tuple[Any, Any]]:
    """Every container in a value, with each key or index in it."""
    keys = (
        list(value)
        if isinstance(value, dict)
        else range(len(value))
        if isinstance(value, list)
        else ()
    )
    for key in keys:
        yield value, key
        yield from places(value[key])  # type: ignore[index]  # a container


def spoiled(value: object, dice: random.Random) -> object:
    """A copy of a JSON value with a few odd things in it."""
    value = copy.deepcopy(value)
    for _ in range(dice.choice([1, 2, 4])):
        if found := list(places(value)):
            container, key = dice.choice(found)
            container[key] = copy.deepcopy(dice.choice(ODD))
    return value


def torn(data: bytes, dice: random.Random) -> bytes:
    """Bytes with some of them changed, or cut."""
    raw = bytearray(data)
    for _ in range(dice.choice([0, 0, 1, 3])):
        raw[dice.randrange(len(raw))] = dice.randrange(256)
    return bytes(raw[: dice.choice([len(raw), len(raw), dice.randrange(1, len(raw))])])


def archive(dice: random.Random) -> bytes:
    """A tar of odd members, compressed."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as out:
        for _ in range(dice.randrange(1, 4)):
            info = tarfile.TarInfo(dice.choice(PATHS))
            info.type = dice.choice([tarfile.REGTYPE] * 5 + list(TYPES))
            data = json.dumps(spoiled(PART, dice)).encode()
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))
    return zlib.compress(torn(raw.getvalue(), dice))


def stream(dice: random.Random) -> bytes:
    """The lines of a node, some lost, doubled, renamed or damaged."""
    text = io.StringIO()
    write_parcel({"dumps/g/rank_0": b"x" * 3_000, "part.json": b"{}"}, "run1", "a", text)
    lines = text.getvalue().splitlines()
    for _ in range(dice.choice([1, 2, 4])):
        at = dice.randrange(len(lines))
        words = lines[at].split(" ")
        words[dice.randrange(len(words))] = dice.choice(
            ["../../x", "end", "-1", "٣", "A" * 9_000, ""]
        )
        lines[at : at + dice.choice([0, 1])] = [" ".join(words)] * dice.choice([0, 1, 30])
        lines = lines or [""]
    return "\n".join(lines).encode()


@pytest.mark.parametrize("seed", range(60))
def test_manifests_and_parts_of_any_content(tmp_path: Path, seed: int) -> None:
    """Parts of other nodes are merged, manifests are read: what is odd is left out."""
    dice = dice_of(seed)
    (tmp_path / "parts").mkdir()
    for name in ("a.json", "b.json", "a.end.json"):
        data = torn(json.dumps(spoiled(PART, dice)).encode(), dice)
        (tmp_path / "parts" / name).write_bytes(data)
    merge_manifest(tmp_path)
    json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_bytes(torn((tmp_path / "manifest.json").read_bytes(), dice))
    expected_ranks(read_manifests([tmp_path / "manifest.json"], []))


@pytest.mark.parametrize("seed", range(60))
def test_archives_of_any_content(tmp_path: Path, seed: int) -> None:
    """They are unpacked below the case, or refused in a sentence."""
    case = tmp_path / "case"
    case.mkdir()
    with suppress(ParcelError):
        unpack(io.BytesIO(archive(dice_of(seed))), case)
    assert [path.name for path in tmp_path.iterdir()] == ["case"]
    assert {path.name for path in case.iterdir()} <= {"dumps"}


@pytest.mark.parametrize("seed", range(60))
def test_streams_of_any_content(tmp_path: Path, seed: int) -> None:
    """Only numbered files appear, and each node is whole or broken, never both."""
    delivery = Delivery()
    data = io.BytesIO(stream(dice_of(seed)))
    _Intake(["a", "b"], tmp_path, delivery).take(data, "run1")
    assert not set(delivery.parcels) & set(delivery.broken)
    assert all(path.name[:-7].isdecimal() for path in tmp_path.iterdir())


class Sends:
    """A launcher whose one node says this of itself."""

    name, at_once = "sends", 1

    def __init__(self, part: object) -> None:
        text = io.StringIO()
        write_parcel({"part.json": json.dumps(part).encode()}, "run1", "a", text)
        self.text = text.getvalue()

    def nodes(self) -> list[str]:
        """One."""
        return ["a"]

    def launch(self, nodes: tuple[str, ...], program: Program) -> Launch:
        """Print it."""
        del program
        return Launch(nodes, ("printf", "%s", self.text))

    def orders(self, node: str) -> dict[str, object]:
        """None."""
        return {"node": node}


@pytest.mark.parametrize("seed", range(20))
def test_nodes_that_say_anything_of_themselves(tmp_path: Path, seed: int) -> None:
    """The node is taken or given up, and the manifest is whole."""
    (tmp_path / "parts").mkdir()
    plan = GatherPlan(orders={}, run="run1", ship=False)
    sends = Sends(spoiled(PART, dice_of(seed)))
    gathered: Gathered = gather(sends, ["a"], plan, tmp_path)
    assert gathered.whole or gathered.failed
    json.loads((tmp_path / "manifest.json").read_text())
