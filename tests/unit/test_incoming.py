"""JSON from outside: what has the expected shape is taken, whatever the rest is."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import run

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unhang.incoming import fit, fitting, overlaid, value_in, value_of


@dataclass(frozen=True)
class Row:
    """A shape."""

    name: str
    number: int = 0
    words: dict[str, str] = field(default_factory=dict)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "number", "words", "\ud800"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(JSON)
def test_nothing_but_value_error_is_raised(value: object) -> None:
    """Numbers of any size, texts that are none, anything where anything else is expected."""
    value = value_of(json.dumps(value))
    try:
        assert isinstance(fit(value, Row), Row)
    except ValueError:
        assert fitting([value, {"name": "a"}], Row) == [Row("a")]
    taken, misfits = overlaid(Row("?"), value)
    assert isinstance(taken.number, int)
    assert not isinstance(taken.number, bool)
    assert set(misfits) <= {"name", "number", "words"}


def test_what_fits_of_an_object_is_taken() -> None:
    """Field by field; what nobody knows is ignored, and nothing is coerced."""
    value = {"name": "a", "number": "7", "more": 1}
    assert overlaid(Row("?", 3), value) == (Row("a", 3), ["number"])
    assert fitting({"name": "a"}, Row) == fitting(None, Row) == []
    assert overlaid(Row("?", 3), [1]) == (Row("?", 3), ["name", "number", "words"])
    with pytest.raises(ValueError, match=r"got `str` - at `\$.number`"):
        fit(value, Row)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, b"\xff\xfe"])
def test_what_is_no_json(text: str | bytes) -> None:
    """One kind of error for all of it."""
    with pytest.raises(ValueError):  # noqa: PT011 - its words are Python's
        value_of(text)


def test_what_python_writes_is_read() -> None:
    """NaN, and paths that are no UTF-8."""
    assert str(value_of(json.dumps([float("nan"), "\udcff"]))) == "[nan, '\\udcff']"


def test_a_shape_that_is_wrong_is_no_misfit() -> None:
    """A mistake in a shape of ours is not taken for bad input."""
    with pytest.raises(TypeError):
        fitting([1], complex | set)  # type: ignore[arg-type]  # that is the mistake


def test_the_command_line_starts_without_it() -> None:
    """What every command imports, and what `unhang run` imports before the job starts."""
    code = (
        "import sys, unhang.cli.main, unhang.run.child.supervisor;"
        "import unhang.casedir.sharing, unhang.stacks;"
        "sys.exit(' '.join({'numpy', 'msgspec'} & set(sys.modules)))"
    )
    done = run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


def test_what_is_in_a_file(tmp_path: Path) -> None:
    """Nothing of a file that is too large, is no JSON, is no file, or is not there."""
    path = tmp_path / "report.json"
    path.write_text('{"a": 1}')
    assert value_in(path, 8) == {"a": 1}
    assert value_in(path, 7) is None
    path.write_text("[1,")
    assert value_in(path, 8) is None
    assert value_in(tmp_path, 8) is None
    assert value_in(tmp_path / "none.json", 8) is None
    os.mkfifo(tmp_path / "fifo")
    assert value_in(tmp_path / "fifo", 8) is None
