"""A recorder whose wrapped classes are stand-ins, by its compiled way and by Python."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from stand_ins import Group, Tensor, Work

from unhang.record.calls import groups, quick, wrap
from unhang.record.calls.recorder import Recorder
from unhang.record.calls.ring import Ring
from unhang.record.contact.beat import Beat
from unhang.record.process import ArmedProcess
from unhang.record.settings import Settings


def _those_of_old(group: Group) -> frozenset[str]:
    """The backends that record themselves in every torch."""
    return frozenset({"gloo", "nccl"}.intersection(groups.backends_of(group).values()))


def needs_library() -> None:
    """Skip where there is no compiled library: Python 3.10, or no cargo."""
    if quick.found() is None:
        pytest.skip("no compiled recorder here")


@pytest.fixture(params=["compiled", "python"])
def recorder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """The stand-ins wrapped, reporting to a recorder of this test."""
    compiled = request.param == "compiled"
    if compiled:
        needs_library()
    monkeypatch.setattr(wrap, "ORIGINALS", {})
    monkeypatch.setattr(groups, "recorded_by_torch", _those_of_old)
    kept = [{**vars(owner)} for owner in (Group, Work)]
    state = ArmedProcess(Settings(), os.getpid(), Beat(None, pid=1, start_ticks=1), Ring(10))
    made = Recorder(state)
    wrap.install(Group, Work, Tensor, compiled=compiled)
    wrap.attach(made)
    yield made
    wrap.detach()
    groups.forget_channels()
    for owner, before in zip((Group, Work), kept, strict=True):
        for name, value in before.items():
            if callable(value) and not name.startswith("__"):
                setattr(owner, name, value)
