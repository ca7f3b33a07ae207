"""How the suite is handed out to workers: files that are there, the longest of them first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from longest_first import APART, LONGEST, in_order, unit_of

INTEGRATION = Path(__file__).parents[1] / "integration"


@dataclass
class Item:
    """As much of a test as the order asks for."""

    nodeid: str


@pytest.mark.parametrize("name", [*LONGEST, *APART])
def test_a_file_with_a_time_is_there(name: str) -> None:
    """One that was renamed would come last."""
    assert (INTEGRATION / f"test_{name}.py").is_file()


def test_no_file_is_both() -> None:
    """Whole, or test by test."""
    assert not LONGEST.keys() & APART.keys()


def test_long_ones_come_first_and_files_stay_together() -> None:
    """Tests of one file keep their order; a long one that is given test by test counts alone."""
    names = ["unit/run/test_a.py::a", "integration/test_run_work.py::b[x/y]", "unit/test_c.py::c"]
    names += [f"integration/test_{name}" for name in ("ray.py::e", "ray.py::d", "z.py::f")]
    given = [Item(f"tests/{name}") for name in names]
    told = [item.nodeid.rpartition("::")[2] for item in in_order(given)]  # type: ignore[arg-type]  # enough of a test
    assert told == ["b[x/y]", "e", "d", "f", "a", "c"]
    units = [unit_of(item.nodeid) for item in given]
    assert units[1] == given[1].nodeid
    assert units[3] == units[4] == "tests/integration/test_ray.py"
