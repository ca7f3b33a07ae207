"""Files that want to harm, and files that were harmed."""

from __future__ import annotations

import gc
import json
import os
import pickle
import shutil
import tracemalloc
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from decoders import read_compiled
from hypothesis import given, settings
from hypothesis import strategies as st
from makedumps import dump, entry, write
from strategies import dumps, encoders

from lab.recorder.torchfile import encode_json, encode_pickle
from unhang.analysis import diagnose
from unhang.errors import NoEvidenceError
from unhang.ingest import load, reading
from unhang.ingest.columns import memberships
from unhang.ingest.columns.dictionaries import Dictionaries
from unhang.ingest.columns.normalise import describe
from unhang.ingest.columns.values import as_int, parse_members
from unhang.ingest.discover.sources import Source
from unhang.ingest.pickles.unpickle import BadPickle, readable, unpickle
from unhang.ingest.reading import Reader
from unhang.model import DumpStatus
from unhang.regular import open_regular

NEST = 300_000
ROOT = Path(__file__).parents[3]


class Evil:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:  # noqa: ANN401 - pickle's protocol
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_executed(protocol: int, tmp_path: Path) -> None:
    """A pickle that calls os.system is refused, in every protocol, and the rest is read."""
    trap = tmp_path / "trap"
    evil = {**dump(), "nccl_comm_state": Evil(trap)}
    write(tmp_path / "d", {"rank_0": pickle.dumps(evil, protocol=protocol), "rank_1": dump()})
    case = load(tmp_path / "d")
    assert [d.status for d in case.dumps] == [DumpStatus.UNREADABLE, DumpStatus.OK]
    assert not trap.exists()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"cos\nsystem\n(X\x02\x00\x00\x00idtR.", "GLOBAL"),
        (b"\x8c\x02os\x8c\x06system\x93.", "STACK_GLOBAL"),
        (b"Pid\n.", "PERSID"),
        (b"K\x00Q.", "BINPERSID"),
        (b"\x82\x01.", "EXT1"),
        (b"K\x01r\xff\xff\xff\x7f.", "memo index"),
        (b"K\x01j\xff\xff\xff\x7f.", "memo index"),
        (b"\x8b\xff\xff\xff\x7f.", "LONG4"),
        (b"\x8e\xff\xff\xff\xff\xff\xff\xff\x00.", "BINBYTES8"),
        (b"\x96\xff\xff\xff\xff\xff\xff\xff\x00.", "BYTEARRAY8"),
        (b"X\xff\xff\xff\x7fabc.", "cut short"),
        (b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffabc.", "cut short"),
        (b")" + b"\x85" * NEST + b".", "containers"),
        (b"}(" + b")" + b"\x85" * 9_000 + b"K\x00u.", "tuple of tuples"),
        (b")q\x00h\x00h\x00\x86.", "tuple of tuples"),
        (b"]" * 50_000 + b".", "more containers"),
        (b"}J\xff\xff\xff\xffK\x02s.", "no string"),
        (b"}(J\xff\xff\xff\xffK\x02u.", "no string"),
        (b"})Ns.", "no string"),
        (b"]q\x00h\x00a" * 3 + b"e.", "malformed"),
        (b"h\x05.", "malformed"),
        (b"K\x01K\x02u.", "malformed"),
        (b"}(]K\x01u.", "no string"),
        (b".", "malformed"),
        (b"", "cut short"),
    ],
)
def test_what_no_dump_needs_is_refused(body: bytes, words: str) -> None:
    """Before the unpickler sees it, or as an error that it raises."""
    with pytest.raises(BadPickle, match=words):
        unpickle(b"\x80\x02" + body)


def in_a_frame(hidden: bytes, *, shown: int) -> bytes:
    """A string whose length is cut by the end of a frame: `hidden` is code to who trusts frames."""
    length = len(hidden).to_bytes(8, "little")
    frame = b"\x8d" + length[:shown]
    return b"".join(
        (b"\x80\x04\x95", len(frame).to_bytes(8, "little"), frame, length[shown:], hidden, b".")
    )


@pytest.mark.parametrize(
    "hidden",
    [
        b"\0" * 4 + b"]r" + (100_000_000).to_bytes(4, "little") + b".",
        b"\0" * 4 + b"}(" + b")" + b"\x85" * 1_000_000 + b"Nu.",
        b"\0" * 4 + b"cos\nsystem\nX\x02\0\0\0id\x85R.",
    ],
    ids=["memo", "tuples", "global"],
)
def test_a_frame_hides_nothing(hidden: bytes) -> None:
    """What a frame cuts out of a string is text: 28 bytes took 1.6 GB, 1 MB ended the process."""
    tracemalloc.start()
    try:
        assert unpickle(in_a_frame(hidden, shown=4)) == (readable(hidden), False)
    except BadPickle as error:
        assert "containers" in str(error)  # noqa: PT017 - that many brackets are no text of a dump
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * len(hidden) + (32 << 20)


@pytest.mark.parametrize("frame", [0, 1, 3, 1 << 62])
def test_frames_promise_nothing(frame: int) -> None:
    """Wherever a frame says that it ends."""
    content = pickle.dumps(dump(3), protocol=4)
    lying = content[:3] + frame.to_bytes(8, "little") + content[11:]
    assert unpickle(lying) == (dump(3), False)


@pytest.mark.parametrize("cut", [12, 20, 40])
def test_a_dump_that_was_cut_at_once_is_a_lost_dump(cut: int, tmp_path: Path) -> None:
    """Not a file that is none."""
    write(tmp_path, {"rank_0": dump(), "rank_1": encode_pickle(dump())[:cut]})
    case = load(tmp_path)
    assert case.dumps[1].status is DumpStatus.UNREADABLE
    assert next(n for n in case.notes if n.source.endswith("rank_1")).text.startswith("it was cut")


def test_deep_lists_are_survived(tmp_path: Path) -> None:
    """Nesting by the million, in a pickle and in JSON, ends in a status."""
    deep = b"\x80\x02" + b"](" * NEST + b"e" * NEST + b"."
    write(tmp_path, {"rank_0": deep, "rank_1.json": b"[" * NEST, "rank_2": dump()})
    hidden = b"\x80\x02}(X\x07\x00\x00\x00entries](" + b"](" * NEST + b"e" * NEST + b"eu."
    write(tmp_path, {"rank_3": hidden})
    case = load(tmp_path)
    assert case.ranks_with_dump == (2,)
    gc.collect()


def test_a_bomb_of_references_is_refused(tmp_path: Path) -> None:
    """A small file whose shapes share one long list a thousand times over."""
    shape = list(range(3000))
    sizes = [shape] * 3000
    rows = [entry(i, input_sizes=sizes) for i in range(3000)]
    write(tmp_path, {"rank_0": pickle.dumps(dump(rows), protocol=4), "rank_1": dump()})
    assert (tmp_path / "rank_0").stat().st_size < 1_000_000
    assert load(tmp_path).ranks_with_dump == (1,)


@pytest.mark.parametrize("item", [5, "", [], [[1]], {}])
def test_a_bomb_of_what_is_no_shape_is_refused(item: Any, tmp_path: Path) -> None:  # noqa: ANN401
    """Every item of a list costs a look, whether it has items of its own or not."""
    sizes = [item, *([[]] * 20_000), None]
    rows = [entry(i, input_sizes=sizes) for i in range(100)]
    write(tmp_path, {"rank_0": pickle.dumps(dump(rows), protocol=4), "rank_1": dump()})
    assert (tmp_path / "rank_0").stat().st_size < 100_000
    assert load(tmp_path).ranks_with_dump == (1,)


@pytest.mark.parametrize("text", ["7" * 65, " " * 64 + "7", "\n" * 100_000])
def test_long_text_is_no_number(text: str) -> None:
    """A dump's values may share one long text, which is not searched for each of them."""
    assert as_int(text) == -1
    assert as_int(" -7 ") == -7


def test_a_list_of_ranks_that_groups_share_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file may give one long list to thousands of groups."""
    seen: list[object] = []

    def parse(value: object) -> tuple[int, ...]:
        seen.append(value)
        return parse_members(value)

    monkeypatch.setattr(memberships, "parse_members", parse)
    shared = [0, 1, 2]
    config = {str(i): {"name": str(i), "desc": "", "ranks": shared} for i in range(50)}
    config["other"] = {"name": "other", "desc": "", "ranks": [1, 2]}
    known = memberships.Memberships()
    declared = describe({"pg_config": config}, known).declared
    assert [known.lists[group.members] for group in declared] == [(0, 1, 2)] * 50 + [(1, 2)]
    assert len(seen) == 2


def test_memory_stays_in_proportion() -> None:
    """The highest memo index that is let through costs some megabytes."""
    data = b"\x80\x02" + b"K\x01" * 500_000 + b"r\xff\xff\x0f\x00."
    tracemalloc.start()
    unpickle(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


def test_a_sparse_giant_is_not_read(tmp_path: Path) -> None:
    """2 GB that are called a dump: by their first bytes nothing, or too large."""
    for name, head in (("rank_0", b""), ("rank_1", b"\x80\x02}(")):
        with (tmp_path / name).open("wb") as file:
            file.write(head)
            file.truncate(2 << 30)
    write(tmp_path, {"rank_2": dump()})
    tracemalloc.start()
    case = load(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20
    assert [d.status.value for d in case.dumps] == ["unreadable", "unreadable", "ok"]


def test_a_file_without_permission_is_a_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said as the system says it; root can read everything, so the refusal is made up."""
    write(tmp_path, {"rank_0": dump(), "rank_1": dump()})

    def refuse(path: str) -> BinaryIO:
        if path.endswith("rank_1"):
            raise PermissionError(13, "Permission denied")
        return open_regular(path)

    monkeypatch.setattr(reading, "open_regular", refuse)
    monkeypatch.setattr(reading, "native_reader", lambda *_: None)
    case = load(tmp_path)
    assert case.dumps[1].status is DumpStatus.UNREADABLE
    assert any("Permission denied" in note.text for note in case.notes)


def test_a_folder_without_permission_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other folders are read."""
    write(tmp_path, {"a/rank_0": dump(), "b/rank_1": dump()})
    real = os.scandir

    def refuse(path: str) -> Any:  # noqa: ANN401 - os.scandir's
        if path.endswith("b"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    case = load(tmp_path)
    assert case.ranks_with_dump == (0,)
    assert any("the folder cannot be read: Permission denied" in n.text for n in case.notes)


def test_names_that_are_no_text_are_shown_somehow(tmp_path: Path) -> None:
    """File names are bytes; a note about one must still be text that can be encoded."""
    path = os.fsencode(tmp_path) + b"/rank_\xff_3"
    Path(os.fsdecode(path)).write_bytes(encode_pickle(dump()))
    case = load(tmp_path)
    assert case.dumps[0].rank == 3
    case.dumps[0].source.encode()


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_damage_never_raises(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Cut anywhere, or with bytes changed anywhere: entries or a status."""
    encode = data.draw(st.one_of(encoders, st.just(encode_json)))
    content = bytearray(encode(data.draw(dumps())))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    for _ in range(data.draw(st.integers(0, 3)) if content else 0):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    folder = write(tmp_path_factory.mktemp("dumps"), {"rank_0": bytes(content), "rank_1": dump()})
    case = load(folder)
    # A byte of a time that is another makes the damaged dump one of another incident.
    told = {note.source for note in case.notes}
    assert 1 in case.ranks_with_dump or "incidents" in told


@settings(deadline=None, max_examples=100)
@given(data=st.binary(max_size=400), head=st.sampled_from([b"", b"\x80\x02", b"\x80\x04", b"{"]))
def test_noise_never_raises(
    data: bytes, head: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Random bytes called a dump."""
    folder = write(tmp_path_factory.mktemp("noise"), {"rank_0": head + data})
    try:
        load(folder)
    except NoEvidenceError as error:
        assert error.hint  # noqa: PT017 - both outcomes are right


def test_cut_files_keep_every_whole_entry() -> None:
    """Wherever the cut is: a prefix of the entries, and never fewer than with an earlier cut."""
    content = dump(5)
    for encode in (encode_pickle, lambda d: pickle.dumps(d, protocol=4)):
        data, most = encode(content), 0
        for length in range(len(data)):
            try:
                value, truncated = unpickle(data[:length])
            except BadPickle:
                assert most == 0
                continue
            assert truncated
            kept = value.get("entries", [])  # type: ignore[attr-defined]  # a dict
            assert kept == content["entries"][: len(kept)]
            assert len(kept) >= most
            most = len(kept)
        assert most == 5
        assert unpickle(data) == (content, False)


def test_cut_json_keeps_whole_entries(tmp_path: Path) -> None:
    """Torch's keys are sorted, so a cut file has lost its version and groups."""
    text = encode_json(dump(5))
    write(tmp_path, {"rank_0.json": text[: text.rindex(b"record_id")]})
    case = load(tmp_path)
    assert case.dumps[0].status is DumpStatus.TRUNCATED
    assert case.calls.record_id.tolist() == [0, 1, 2, 3]
    assert case.dumps[0].version == ""


def test_foreign_json_is_passed_over(tmp_path: Path) -> None:
    """Settings and reports beside dumps are none."""
    write(tmp_path, {"rank_0": dump(), "config.json": json.dumps({"lr": 0.1}).encode()})
    write(tmp_path, {"rank_1.json": b'{"entries": [1, 2]}'})
    case = load(tmp_path)
    assert case.ranks_with_dump == (0,)
    assert any("skipped 2 files" in note.text for note in case.notes)


@pytest.mark.parametrize("key", sorted(entry(0)))
def test_any_value_under_any_key_is_survived(key: str, tmp_path: Path) -> None:
    """An entry with nonsense under one key is still a row."""
    values = [[], {}, [[]], ([],), {"a": [1]}, -1, "x", True, 2**70, 1e300, None]
    rows = [{**entry(i), key: value} for i, value in enumerate(values)]
    write(tmp_path, {"rank_0": pickle.dumps(dump(rows), protocol=2)})
    assert len(load(tmp_path).calls) == len(values)


def test_every_cut_of_a_healthy_dump_is_no_sign_of_health(tmp_path: Path) -> None:
    """Of a rank whose dump was cut before its first call nothing is known; later, not the end."""
    folder = tmp_path / "dumps"
    shutil.copytree(ROOT / "examples" / "healthy" / "dumps", folder)
    one = folder / "gloo" / "rank_2"
    whole = one.read_bytes()
    statuses = set()
    for length in (0, 2, 40, 80, 200, 400, 1000, len(whole) // 2, len(whole) - 1):
        one.write_bytes(whole[:length])
        case = load(folder)
        [cut] = [dump for dump in case.dumps if dump.rank == 2]
        statuses.add(cut.status)
        if length in (80, 200):
            assert cut.status is DumpStatus.UNREADABLE
        assert diagnose(case).status == "insufficient", length
    assert statuses == {DumpStatus.EMPTY, DumpStatus.UNREADABLE, DumpStatus.TRUNCATED}


COUNTERS = b"(X\x01\x00\x00\x000}(X\x18\x00\x00\x00last_enqueued_collectiveK\x03uu"
A_FRAME = b"\x95\xff\x00\x00\x00\x00\x00\x00\x00"


@pytest.mark.parametrize("counters", [b"}" + COUNTERS, b"}" + A_FRAME + COUNTERS])
@pytest.mark.parametrize(
    "later", [b"", b"X\x01\x00\x00\x00x", b"X\x01\x00\x00\x00xK\x01]](K\x03ea"]
)
def test_what_is_kept_of_a_cut_dump_is_the_same_for_both(
    counters: bytes, later: bytes, tmp_path: Path
) -> None:
    """Frames are stepped over between a container and its mark; pairs may turn out to be none."""
    data = b"\x80\x04}\x95\xff\x00\x00\x00\x00\x00\x00\x00(X\x09\x00\x00\x00pg_status" + counters
    path = tmp_path / "rank_0"
    path.write_bytes(data + later)
    source = Source(str(path), "rank_0", path.stat().st_size, 0)
    fast = read_compiled(path)
    [general] = Reader(Dictionaries()).read(source)
    if not later.endswith(b"a"):
        assert general.decoded is not None
        assert [status.enqueued for status in general.decoded.statuses] == [3]
    assert fast is None or (general.decoded and fast.statuses == general.decoded.statuses)
