"""The ring of last calls in a heartbeat's file, read as the dump that a rank could not leave."""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from time import time_ns

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unhang.analysis import diagnose
from unhang.errors import NoEvidenceError
from unhang.ingest import load
from unhang.ingest.pages.page import splits_in
from unhang.ingest.pages.pagedump import dumps_of
from unhang.model import DumpStatus
from unhang.record.calls import remembering
from unhang.record.calls.remembering import Given
from unhang.record.calls.ring import Channel
from unhang.record.contact.beat import Beat
from unhang.record.contact.beatlayout import GroupBeat, Phase, Word
from unhang.record.contact.latest import (
    PAGE_BYTES,
    RECORDS,
    RING_START,
    TABLE_START,
    Flag,
    Item,
    read_page,
)
from unhang.report import Report

WORLD = 3


class Group:
    """What a channel refers to."""


GROUP = Group()


@dataclass
class Page:
    """A rank that calls, and the file that it leaves."""

    path: Path
    rank: int
    backend: str = "gloo"

    def __post_init__(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.beat = Beat(self.path, pid=100 + self.rank, start_ticks=1)
        for word, value in (
            (Word.RANK, self.rank), (Word.WORLD_SIZE, WORLD), (Word.PHASE, Phase.READY),
        ):  # fmt: skip
            self.beat.set(word, value)
        self.counted = self.exchanges = 0
        channel = Channel(
            lambda: GROUP,  # type: ignore[arg-type]
            "0", "default_pg", self.backend, {}, self.rank, 1_800_000, 0,
        )  # fmt: skip
        self.row = self.beat.latest.group(channel)

    def call(
        self, op: str = "all_reduce", *, ends: bool = True, numel: int = 8, dtype: int = 1,
        peer: int = -1, by_cpp: int = 0, assumed: bool = False,
    ) -> None:  # fmt: skip
        """Make one call; `by_cpp` others before it are seen by nobody."""
        self.counted += 1 + by_cpp
        exchange = op in ("send", "recv")
        self.exchanges += exchange
        flags = Flag.EXCHANGE * exchange | Flag.ASSUMED * assumed
        given = Given(
            self.row, -1 if exchange else self.counted, self.exchanges, peer,
            0 if exchange else -1, flags, numel, numel, dtype,
        )  # fmt: skip
        self.beat.entered(sys._getframe(1), op, "0", numel, given)
        work = object()
        self.beat.enqueued()
        self.beat.latest.returned(self.beat.latest.at, work)
        self.beat.waiting()
        self.beat.latest.awaited(id(work))
        if ends:
            self.beat.latest.ended(id(work), self.beat.waited())


def pages(tmp_path: Path, backend: str = "gloo") -> list[Page]:
    """Three ranks that have made five calls alike."""
    made = [Page(tmp_path / "dumps/calls" / f"rank_{rank}", rank, backend) for rank in range(WORLD)]
    for page in made:
        for _ in range(5):
            page.call()
    return made


def stand(*made: Page) -> None:
    """Let time go by in which no rank makes a call."""
    for page in made:
        page.beat.set(Word.TICK_NS, time_ns() + 5 * 10**9)


def judged(tmp_path: Path) -> Report:
    """The verdict on the files alone."""
    return diagnose(load([str(tmp_path)]))


def told(report: Report) -> tuple[str, tuple[int, ...]]:
    """The first cause, and whom it blames."""
    return report.findings[0].code, report.findings[0].culprits


def test_a_rank_that_never_came_is_told_by_last_calls_alone(tmp_path: Path) -> None:
    """With the lines of both sides, and a note that says on what it rests."""
    one, two, three = pages(tmp_path)
    for page in (one, three):
        page.call(ends=False)
    stand(one, two, three)
    report = judged(tmp_path)
    assert told(report) == ("UH101", (1,))
    sites = {(site.role, site.ranks, Path(site.file).name) for site in report.findings[0].sites}
    here = Path(__file__).name
    assert sites == {("culprit", (1,), here), ("victim", (0, 2), here)}
    assert any("ranks 0-2 left no dumps" in note.text for note in report.notes)
    assert two.beat.words[Word.CALLS] == 5


@pytest.mark.parametrize(
    ("odd", "code"),
    [({"op": "broadcast"}, "UH201"), ({"numel": 9}, "UH202"), ({"dtype": 2}, "UH203")],
)
def test_calls_that_do_not_fit_are_told_by_last_calls_alone(
    odd: dict[str, object], code: str, tmp_path: Path
) -> None:
    """Another operation, size or element type."""
    one, two, three = pages(tmp_path)
    two.call(ends=False, **odd)  # type: ignore[arg-type]
    for page in (one, three):
        page.call(ends=False)
    stand(one, two, three)
    assert told(judged(tmp_path)) == (code, (1,))


def test_a_send_that_no_one_receives_is_told_by_last_calls_alone(tmp_path: Path) -> None:
    """Sends and receives are placed after the collectives before them."""
    one, two, _ = pages(tmp_path)
    one.call("send", peer=1)
    two.call("recv", peer=0)
    one.call("recv", peer=1, ends=False)
    two.call("recv", peer=0, ends=False)
    stand(one, two)
    report = judged(tmp_path)
    assert report.findings[0].code in ("UH302", "UH303")
    case = load([str(tmp_path)])
    rows = [case.call(row) for row in range(len(case.calls.seq))]
    assert [call.seq for call in rows if call.is_p2p] == [5, 5, 5, 5]
    assert [call.p2p_seq for call in rows if call.is_p2p] == [1, 2, 1, 2]


def test_a_page_beside_a_dump_is_not_needed(tmp_path: Path) -> None:
    """The dump of the same rank says more."""
    for page in pages(tmp_path):
        page.call(ends=False)
    data = read_page(tmp_path / "dumps/calls/rank_1")
    dump = next(iter(dumps_of(data))).value
    (tmp_path / "dumps/gloo").mkdir()
    (tmp_path / "dumps/gloo/rank_1").write_bytes(pickle.dumps(dump, protocol=2))
    case = load([str(tmp_path)])
    assert [Path(d.source).parent.name for d in case.dumps] == ["calls", "gloo", "calls"]
    assert [note.text[:29] for note in case.notes if note.source == "last calls"] == [
        "ranks 0,2 left no dumps: what"
    ]


def test_calls_that_only_cpp_made_are_never_said_to_be_missing(tmp_path: Path) -> None:
    """What the ring lacks is told as lacking: before its window, and after its last call."""
    one, two, three = pages(tmp_path)
    for page in (one, two, three):
        page.call(by_cpp=4)
    for page in (one, three):
        page.call(ends=False)
    beats = [GroupBeat("gloo", 0, 11, -1, 10, "0", "default_pg")]
    two.beat.tick(beats, 0, 0)
    stand(one, two, three)
    case = load([str(tmp_path)])
    assert {dump.status for dump in case.dumps} == {DumpStatus.TRUNCATED}
    assert case.calls.seq.tolist() == [10, 11, 10, 10, 11]
    report = diagnose(case)
    assert all(1 not in f.culprits or f.code == "UH103" for f in report.findings)


def test_a_rank_without_any_call_has_made_none(tmp_path: Path) -> None:
    """It is an empty dump: the others wait for it."""
    one, two, three = (
        Page(tmp_path / "dumps/calls" / f"rank_{rank}", rank) for rank in range(WORLD)
    )
    one.call(ends=False)
    two.call(ends=False)
    stand(one, two, three)
    assert told(judged(tmp_path)) == ("UH101", (2,))


def test_a_device_has_finished_what_it_was_given_before_it_was_asked(tmp_path: Path) -> None:
    """The end of a wait is none there; counters of once a second are."""
    one, *_ = pages(tmp_path, "nccl")
    one.call()
    one.beat.tick([GroupBeat("nccl", 0, 6, 6, 5, "0", "default_pg")], 0, 0)
    dump = next(iter(dumps_of(read_page(one.path)))).value
    assert [entry["retired"] for entry in dump["entries"]] == [True] * 5 + [False]
    assert dump["pg_status"]["0"]["last_completed_collective"] == 5


def test_the_oldest_calls_have_made_room(tmp_path: Path) -> None:
    """Then the first of those that are left is not the first of all."""
    one, *_ = pages(tmp_path)
    for _ in range(RECORDS):
        one.call()
    dump = next(iter(dumps_of(read_page(one.path)))).value
    assert len(dump["entries"]) == RECORDS
    assert dump["entries"][0]["record_id"] > 0
    assert dump["entries"][-1]["collective_seq_id"] == RECORDS + 5


def test_a_page_that_is_cut_short_or_of_another_version_is_a_lost_dump(tmp_path: Path) -> None:
    """Said as such, and no rank is blamed for it."""
    one, two, three = pages(tmp_path)
    for page in (one, two, three):
        page.call(ends=False)
    one.path.write_bytes(read_page(one.path)[:-1])
    three.beat.set(Word.VERSION, 2)
    case = load([str(tmp_path)])
    problems = [note.text for note in case.notes if note.level == "error"]
    assert problems == [
        "it is no whole page of last calls",
        "it was written by another version of unhang",
    ]
    two.path.unlink()
    with pytest.raises(NoEvidenceError):
        load([str(tmp_path)])


words = st.integers(-(2**63), 2**63 - 1)
spots = st.one_of(
    st.integers(RING_START // 8, TABLE_START // 8 - 1), st.integers(2, 351), st.just(Word.CALLS)
)


@given(stores=st.lists(st.tuples(spots, words), max_size=40), text=st.binary(max_size=300))
def test_no_page_harms_its_reader(
    stores: list[tuple[int, int]], text: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever stands in it, what comes is a case or an error of ours."""
    folder = tmp_path_factory.mktemp("page")
    page = Page(folder / "rank_1", 1)
    for _ in range(3):
        page.call()
    for spot, value in stores:
        page.beat.words[spot] = value
    data = bytearray(read_page(page.path))
    data[TABLE_START + 2 : TABLE_START + 2 + len(text)] = text
    (folder / "rank_1").write_bytes(data[:PAGE_BYTES])
    try:
        case = load([str(folder)])
    except NoEvidenceError:
        return
    assert len(case.calls.seq) <= RECORDS
    diagnose(case)


def test_a_record_that_is_half_written_is_left_out(tmp_path: Path) -> None:
    """Its number is stored last."""
    one, *_ = pages(tmp_path)
    one.beat.words[one.beat.latest.at + Item.NUMBER] = 0
    dump = next(iter(dumps_of(read_page(one.path)))).value
    assert [entry["collective_seq_id"] for entry in dump["entries"]] == [1, 2, 3, 4]


def test_numbers_that_are_assumed_hold_where_the_groups_count_agrees(tmp_path: Path) -> None:
    """Where it does not, C++ has made calls among them: they are left out."""
    for count, kept in ((9, 9), (12, 7)):
        page = Page(tmp_path / f"{count}/rank_1", 1)
        for step in range(9):
            page.call(assumed=step > 6)
        page.beat.tick([GroupBeat("gloo", 0, count, -1, 9, "0", "default_pg")], 0, 0)
        dump = next(iter(dumps_of(read_page(page.path))))
        assert len(dump.value["entries"]) == kept
        assert bool(dump.problem) is (kept < 9)


def test_what_may_hold_a_secret_is_not_kept(tmp_path: Path) -> None:
    """Keys of stores, and the program's own words; the calls are whole."""
    one, *_ = pages(tmp_path)
    one.beat.awaits("token=AKIAIOSFODNN7EXAMPLE")
    one.beat.has_set("token=AKIAIOSFODNN7EXAMPLE")
    one.beat.tell("AKIAIOSFODNN7EXAMPLE")
    page = read_page(one.path)
    assert b"AKIA" in one.path.read_bytes()
    assert b"AKIA" not in page
    assert len(next(iter(dumps_of(page))).value["entries"]) == 5


@pytest.mark.parametrize(
    ("splits", "numel", "found"),
    [
        (([1, 2, 3], [3, 1, 2]), 12, ((1, 2, 3), (3, 1, 2), 2)),
        (None, 12, ((4, 4, 4), (4, 4, 4), 1)),
        (([0, 0, 0], [0, 0, 0]), 0, ((0, 0, 0), (0, 0, 0), 1)),
        (None, 13, None),
        (([1, 2], [1, 2]), 12, None),  # of another group than the one it names
        (([5, 5, 3], [5, 5, 3]), 12, None),
    ],
)
def test_the_newest_exchange_tells_its_parts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    splits: tuple[list[int], list[int]] | None,
    numel: int,
    found: tuple[tuple[int, ...], tuple[int, ...], int] | None,
) -> None:
    """Splits count rows, and a page has the elements of all of them."""
    monkeypatch.setattr(remembering, "_members", lambda _: "0-2")
    page = Page(tmp_path / "rank_0", 0)
    page.call()
    page.call("all_to_all", ends=False, numel=numel)
    if splits:
        page.beat.latest.split(*splits)
    told = splits_in(read_page(page.path))
    if found is None:
        assert told == ()
    else:
        sends, expects, width = found
        parts = (tuple(n * width for n in sends), tuple(n * width for n in expects))
        assert told == (((2,), (0, 1, 2), *parts),)
        page.call("all_to_all", ends=False, numel=12)
        assert [each[0] for each in splits_in(read_page(page.path))] == [(2,), (3,)]
    assert splits_in(read_page(page.path)[:-1]) == ()
    page.call("all_to_all", ends=False, numel=12, by_cpp=1)
    assert splits_in(read_page(page.path)) == (), "other calls are in between"
    page.call()
    assert splits_in(read_page(page.path)) == ()
