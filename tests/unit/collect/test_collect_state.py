"""Going on with a collection: what an earlier one left in its case."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unhang.cli.evidence.collect import _read_state
from unhang.errors import InputError


@pytest.mark.parametrize("state", [b"[" * 200_000, b"5", b"{}", b'{"options": 1, "nodes": []}'])
def test_a_state_that_is_none_is_said(tmp_path: Path, state: bytes) -> None:
    """No traceback, however deep it is nested."""
    (tmp_path / "collect.json").write_bytes(state)
    with pytest.raises(InputError):
        _read_state(tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """The case may be a stranger's."""
    os.mkfifo(tmp_path / "collect.json")
    with pytest.raises(InputError, match="is not a case of unhang collect"):
        _read_state(tmp_path)
