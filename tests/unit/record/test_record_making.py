"""What the heartbeat has of groups that are made."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from unhang.record.calls.making import Making
from unhang.record.contact.beat import Beat
from unhang.record.contact.heartbeat import read_heartbeat
from unhang.record.contact.latest import members_text


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([3], "3"),
        ([0, 1], "0-1"),
        ([0, 2], "0,2"),
        ([0, 8, 16, 24], "0-24:8"),
        ([0, 1, 2, 3, 8], "0-3,8"),
        ([0, 3, 4, 9, 11, 20, 33, 40], "8~5bbf0121"),
    ],
)
def test_ranks_in_few_characters(ranks: list[int], text: str) -> None:
    """As people write them, as long as that is short."""
    assert members_text(ranks) == text


def test_the_last_groups_are_kept_as_a_call(tmp_path: Path) -> None:
    """Newest first; the group of all begins anew, and names made from the ranks tell nothing."""
    beat, making = Beat(tmp_path / "1.beat", pid=7, start_ticks=8), Making()

    def told(ranks: list[int], name: str, **named: object) -> str:
        args = (len(ranks), 0, ranks, "gloo", None) if not named else ()
        noted = making.begins(beat, sys._getframe(1), (*args, name) if args else (), named)
        read = read_heartbeat(tmp_path / "1.beat")
        assert read is not None
        assert not noted or (read.op, read.numel) == ("new_group", len(ranks))
        return read.group if noted else ""

    assert told([], "0") == ""
    assert told([1, 0], "1") == "1=0-1"
    assert told([1, 2], "2", global_ranks_in_group=[1, 2], group_name="2") == "2=1-2 1=0-1"
    assert told([4, 5, 6], "0a1b2c3d4e") == "2=1-2 1=0-1"
    assert [told([0], str(name)) for name in (3, 4)][-1] == "4=0 3=0 2=1-2"
    told([], "0")
    assert told([0, 1], "1") == "1=0-1"
    assert not making.begins(beat, sys._getframe(), (), {})
