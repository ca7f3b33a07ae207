"""Some cases of these tests are judged in another order, too: that must change nothing.

Dumps, processes and lines stand in another order then; so do observers, and what explains what.

Which tests: one in eight, by the sum of its name, so that it is the same ones in each run.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from random import Random

import pytest
from shuffled import in_other_order

from unhang.analysis.rules import explaining, order
from unhang.case import Case
from unhang.report import Report

_ONE_IN = 8


@pytest.fixture(autouse=True)
def _in_any_order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    number = zlib.crc32(request.node.nodeid.encode())
    if number % _ONE_IN == 0 and hasattr(request.module, "diagnose"):
        monkeypatch.setattr(request.module, "diagnose", _checked(request.module.diagnose, number))


def _checked(diagnose: Callable[..., Report], seed: int) -> Callable[..., Report]:
    def checked(case: Case, *, slow: bool = False) -> Report:
        report = diagnose(case, slow=slow)
        with pytest.MonkeyPatch.context() as patch:
            random = Random(seed)  # noqa: S311
            for module, name in ((order, "OBSERVERS"), (explaining, "EXPLAINS")):
                rows = getattr(module, name)
                patch.setattr(module, name, tuple(random.sample(rows, len(rows))))
            assert diagnose(in_other_order(case, seed), slow=slow) == report
        return report

    return checked
