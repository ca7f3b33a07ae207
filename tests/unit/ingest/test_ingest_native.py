"""The compiled decoder says what the Python reader says, or leaves the file to it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from decoders import compiled, load_with, read_compiled
from hypothesis import given, settings
from hypothesis import strategies as st
from makedumps import FRAME, dump, entry
from strategies import dumps, encoders

from lab.recorder.torchfile import encode_pickle
from unhang import built
from unhang.analysis import diagnose
from unhang.case import Case
from unhang.ingest import reading
from unhang.ingest.columns.dictionaries import Dictionaries
from unhang.ingest.discover.sources import Source
from unhang.ingest.native import library, loading
from unhang.model import Note

ROOT = Path(__file__).parents[3]


def plain(case: Case | None) -> Any:  # noqa: ANN401 - compared as a whole
    """All that a case says, without its internal numbers."""
    if case is None:
        return None
    calls = [case.call(row) for row in range(len(case.calls))]
    status = case.group_status
    columns = (status.dump, status.group, status.joined_by, status.last_enqueued)
    counters = [
        (dump, case.groups[group] if group >= 0 else None, joined, count)
        for dump, group, joined, count in zip(*(c.tolist() for c in columns), strict=True)
    ]
    dumps = [dataclasses.replace(d, group_ids=()) for d in case.dumps]
    known = [[case.groups[g] for g in d.group_ids] for d in case.dumps]
    return calls, counters, dumps, known, case.world_size, sorted(n.text for n in case.notes)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_both_paths_read_the_same(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whole and cut files of random content, by any pickler."""
    folder = tmp_path_factory.mktemp("dumps")
    for rank in range(3):
        content = data.draw(encoders)(data.draw(dumps(rank)))
        cut = data.draw(st.one_of(st.just(len(content)), st.integers(0, len(content))))
        (folder / f"rank_{rank}").write_bytes(content[:cut])
    with pytest.MonkeyPatch.context() as patch:
        fast, general = (load_with(folder, patch, native=fast) for fast in (True, False))
    assert plain(fast) == plain(general)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda e: e.update(collective_seq_id="7"),
        lambda e: e.update(retired=1),
        lambda e: e.update(time_created_ns=1.5),
        lambda e: e.update(process_group=("0",)),
        lambda e: e.update(frames="none"),
        lambda e: e.pop("is_p2p"),
        lambda e: e.update(seq_id=e.pop("collective_seq_id")),
        lambda e: e.update(state="undecided"),
        lambda e: e.update(record_id=-5),
    ],
)
def test_what_is_unusual_is_left_to_the_general_path(
    spoil: Callable[[dict[str, Any]], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old keys, wrong types, unknown words and entries out of order."""
    rows = [entry(i) for i in range(3)]
    spoil(rows[1])
    (tmp_path / "rank_0").write_bytes(encode_pickle(dump(rows, ranks=1)))
    assert read_compiled(tmp_path / "rank_0") is None
    assert plain(load_with(tmp_path, monkeypatch, native=True)) == plain(
        load_with(tmp_path, monkeypatch, native=False)
    )


def test_odd_values_mean_the_same_to_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local id beyond 32 bits, a pair as a list, empty and missing threads, a long shape."""
    changes: list[dict[str, Any]] = [
        {"pg_id": 2**40},
        {"process_group": ["0", "default_pg"]},
        {"thread_name": ""},
        {"thread_id": "other"},
        {"input_sizes": [[1] * 100, [2]]},
        {"input_sizes": [[True], ["x"], 5]},
        {"profiling_name": "x" * 5000},
    ]
    rows = [entry(i, **change) for i, change in enumerate(changes)]
    rows.append(entry(99, thread_name="latin", profiling_name="nccl:ABC"))
    content = encode_pickle(dump(rows, ranks=1)).replace(b"latin", b"l\xe4t\xedn")
    (tmp_path / "rank_0").write_bytes(content)
    assert read_compiled(tmp_path / "rank_0") is not None
    assert plain(load_with(tmp_path, monkeypatch, native=True)) == plain(
        load_with(tmp_path, monkeypatch, native=False)
    )


def test_long_strings_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many of one length that differ at either end, each met again among others."""
    names = [f"{first}{'x' * 2000}{last}" for first in "ab" for last in "cdef"]
    for rank in range(12):
        rows = [entry(at, profiling_name=names[at * rank % 7]) for at in range(12)]
        (tmp_path / f"rank_{rank}").write_bytes(encode_pickle(dump(rows, ranks=12)))
    assert plain(load_with(tmp_path, monkeypatch, native=True)) == plain(
        load_with(tmp_path, monkeypatch, native=False)
    )


def outcome_of(data: bytes) -> int:
    """What becomes of one file; the decoder itself must not fail."""
    reader = compiled()
    opened = reader.library.open(1)
    outcomes = reader.library.decode_bytes(opened, data)
    reader.library.close(opened)
    assert outcomes is not None
    return int(outcomes[0, 0])


@settings(deadline=None, max_examples=300)
@given(data=st.binary(max_size=300))
def test_random_bytes_are_survived(data: bytes) -> None:
    """Any bytes behind a pickle's header end in one of the three outcomes."""
    assert outcome_of(b"\x80\x02" + data) in (library.WHOLE, library.CUT, library.UNUSUAL)


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_mutated_dumps_are_survived(data: st.DataObject) -> None:
    """Bytes changed anywhere in a dump."""
    content = bytearray(encode_pickle(dump(6)))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    assert outcome_of(bytes(content)) in (library.WHOLE, library.CUT, library.UNUSUAL)


def test_memory_grows_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of strings, stacks, shapes and calls, far beyond what is set aside at first."""
    rows = [
        entry(
            i,
            frames=[{"name": f"f{i % 5000}", "filename": f"file_{i % 700}.py", "line": i}] * 3,
            input_sizes=[[i, j] for j in range(i % 5)],
            time_created_ns=i,
        )
        for i in range(6000)
    ]
    rows[77]["output_sizes"] = [[k] for k in range(20_000)]
    (tmp_path / "rank_0").write_bytes(encode_pickle(dump(rows, ranks=1)))
    found = read_compiled(tmp_path / "rank_0")
    assert found is not None
    assert found.count == 6000
    assert plain(load_with(tmp_path, monkeypatch, native=True)) == plain(
        load_with(tmp_path, monkeypatch, native=False)
    )


def test_a_library_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """It could write other columns than those that it is given."""
    compiled()
    monkeypatch.setattr(library, "fingerprint", lambda _: "0-0")
    assert library.found.__wrapped__() == "the compiled decoder was built from other sources"


def test_a_library_that_is_none_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of another platform, cut short, or not there."""
    monkeypatch.setattr(library, "LIBRARY", tmp_path / "decoder.so")
    assert library.found.__wrapped__() == "this installation has no compiled decoder"
    (tmp_path / "decoder.so").write_bytes(b"\x7fELF")
    assert "cannot be loaded" in library.found.__wrapped__()


def test_what_it_is_built_from_is_told_apart() -> None:
    """The Python that calls it and the Rust sources, of which a wheel has the first alone."""
    told = [built.fingerprint(name).split("-") for name in built.LIBRARIES]
    assert {len(part) for each in told for part in each} == {16}
    assert len({part for each in told for part in each}) == 2 * len(built.LIBRARIES)
    assert built.fits("1-2", "1-2")
    assert built.fits("1-2", "1")
    assert not built.fits("1-2", "1-3")


def test_a_large_case_says_why_it_is_read_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no library, and only then."""
    notes: list[Note] = []
    monkeypatch.setattr(library, "found", lambda: "this installation has no compiled decoder")
    assert loading.native_reader(1 << 20, Dictionaries(), notes) is None
    assert not notes
    assert loading.native_reader(100 << 20, Dictionaries(), notes) is None
    assert "no compiled decoder" in notes[0].text
    assert "cargo" in notes[0].text


def test_every_cut_of_a_recorded_dump_is_read_the_same(tmp_path: Path) -> None:
    """Whose recorder wrote it, how many calls are left, what it says of itself."""
    data = (ROOT / "examples" / "never-joined-armed" / "dumps" / "gloo" / "rank_0").read_bytes()
    sources = []
    for cut in range(20, len(data), 7):
        path = tmp_path / f"rank_{cut}"
        path.write_bytes(data[:cut])
        sources.append(Source(str(path), path.name, cut, 1))
    compared = 0
    for batch in compiled().read(sources):
        for source, found in batch:
            if found is None:
                continue
            [general] = reading.Reader(Dictionaries()).read(source)
            assert general.decoded is not None
            assert found.reported_by == general.decoded.reported_by
            assert found.count == general.decoded.count
            assert repr(found.origin) == repr(general.decoded.origin)
            compared += 1
    assert compared > len(sources) // 2


def test_frames_that_are_no_list_are_no_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dict is walked neither by its keys nor by its values."""
    rows = [entry(0), entry(1, frames={"name": "f", "filename": "a.py", "line": 3})]
    (tmp_path / "rank_0").write_bytes(encode_pickle(dump(rows, ranks=1)))
    fast, general = (load_with(tmp_path, monkeypatch, native=fast) for fast in (True, False))
    assert plain(fast) == plain(general)
    assert fast is not None
    assert fast.calls.stack.tolist()[1] == -1


@pytest.mark.parametrize(
    ("sizes", "dtypes", "equal", "equal_dtypes"),
    [
        ([[True, 5]], ["Float"], [[1, 5]], ["Float"]),
        ([[1.0, 5]], ["Float"], [[1, 5]], ["Float"]),
        ([""], ["Float"], [[]], ["Float"]),
        ({"": 1}, ["Float"], [[]], ["Float"]),
        ([{}], ["Float"], [[]], ["Float"]),
        ([[1, 5]], {"Float": 1}, [[1, 5]], ["Float"]),
    ],
)
@pytest.mark.parametrize("odd_first", [True, False])
def test_no_call_is_read_otherwise_for_an_equal_one_before_it(
    sizes: Any, dtypes: Any, equal: Any, equal_dtypes: Any, *, odd_first: bool,  # noqa: ANN401
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """True is 1, and "" has the items of []: what is no size or dtype is left out, it alone."""
    odd = entry(odd_first is False, input_sizes=sizes, input_dtypes=dtypes)
    honest = entry(odd_first, input_sizes=equal, input_dtypes=equal_dtypes)
    rows = [odd, honest] if odd_first else [honest, odd]
    (tmp_path / "rank_0").write_bytes(encode_pickle(dump(rows, ranks=1)))
    fast, general = (load_with(tmp_path, monkeypatch, native=fast) for fast in (True, False))
    assert plain(fast) == plain(general)
    assert general is not None
    signature = general.signatures[general.calls.signature[int(odd_first)]]
    assert signature.input_sizes == tuple(map(tuple, equal))
    assert signature.input_dtypes == ("Float",)
    assert general.calls.signature[0] != general.calls.signature[1]


def test_entries_that_stand_where_a_key_should_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a cut dump only pairs are kept: a list of entries without its key is none."""
    whole = encode_pickle(dump(3, ranks=1))
    key = whole.index(b"X\x07\x00\x00\x00entries")
    after = whole.index(b"](", key)
    for data, calls in ((whole[:-3], 3), (whole[:key] + whole[after:-3], 0)):
        case = read_cut(tmp_path, monkeypatch, data)
        assert case is not None
        assert len(case.calls) == calls


@pytest.mark.parametrize("code", [b"r", b"j"], ids=["put", "get"])
@pytest.mark.parametrize(
    ("index", "is_kept"),
    [(b"", True), (b"\xff\xff\x0f", True), (b"\x00\x00\x10", False), (b"\xff\xff\xff", False)],
)
def test_an_index_that_is_cut_is_refused_once_it_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: bytes, index: bytes, *, is_kept: bool
) -> None:
    """What is left of it can only grow, so no bytes that were lost would have made it good."""
    data = encode_pickle(dump(3, ranks=1))[:-1] + code + index
    case = read_cut(tmp_path, monkeypatch, data)
    assert len(case.calls if case else ()) == (3 if is_kept else 0)
    found = read_compiled(tmp_path / "rank_0")
    assert (found is not None) == is_kept


def read_cut(folder: Path, monkeypatch: pytest.MonkeyPatch, data: bytes) -> Case | None:
    """Read one cut file on both paths, which agree."""
    (folder / "rank_0").write_bytes(data)
    fast, general = (load_with(folder, monkeypatch, native=fast) for fast in (True, False))
    assert plain(fast) == plain(general)
    return general


def test_fuzzed_inputs_are_read_the_same() -> None:
    """A sample of `make fuzz`."""
    command = [sys.executable, ROOT / "tests" / "fuzz" / "decoders.py", "--count", "8000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


CAPTURES = sorted((ROOT / "tests" / "data" / "nccl").glob("**/*.tar.gz"))[::12]


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_real_captures_are_judged_the_same(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample of what torch really wrote, note by note."""
    cases = [load_with(capture, monkeypatch, native=native) for native in (True, False)]
    found = [(repr(diagnose(case)), case.notes) if case else None for case in cases]
    assert found[0] == found[1]


@pytest.mark.parametrize("native", [False, True])
def test_calls_of_one_line_have_one_stack_whether_they_passed_our_recorder_or_not(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    native: bool,  # noqa: FBT001 - which decoder
) -> None:
    """Unusual calls pass a wrapper in Python, which torch records; usual ones the compiled way."""
    line = [FRAME, {"name": "step", "filename": "train.py", "line": 10}]
    wrapper = {"name": "allreduce", "filename": "/venv/unhang/record/calls/wrap.py", "line": 266}
    rows = [entry(n, frames=[wrapper, *line] if n % 2 else line) for n in range(4)]
    rows.append(entry(4, frames=[wrapper]))
    (tmp_path / "rank_0").write_bytes(encode_pickle(dump(rows, ranks=1)))
    case = load_with(tmp_path, monkeypatch, native=native)
    assert case is not None
    assert case.calls.stack.tolist() == [0] * 4 + [-1]
    assert [frame.function for frame in case.call(1).frames] == ["all_reduce", "step"]
