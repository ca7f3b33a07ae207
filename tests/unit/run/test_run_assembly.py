"""Who takes part, who is elected, what is seen of all: states without sockets or clocks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from unhang.casedir.sharing import Announcement
from unhang.run.meeting.assembly import SILENT_S, TURN_S, Assembly, Succession, Successor
from unhang.run.meeting.beats import BeatError, NodeBeat, packed, unpacked
from unhang.run.watching.watch import Alarm, HangWatch, ProgressLook, RankProgress, Resumed

NEWS = Announcement("head-1", "hang", "it stands", 0.0)


def rank_at(rank: int, finished: int = 7, *, waiting: bool = True) -> RankProgress:
    """A rank as its own supervisor sees it."""
    return RankProgress(rank, 500 + rank, finished, finished, waiting=waiting, busy=False)


def beat_of(*ranks: RankProgress, world: int = 8, attempt: int = 0) -> NodeBeat:
    """What travels of these."""
    return NodeBeat(attempt, world, 1.0, ranks, frozenset(each.rank for each in ranks))


def led(*others: str) -> Assembly:
    """A leader with ranks 0-1, and others that have just joined."""
    assembly = Assembly("head-1")
    assembly.mine = beat_of(rank_at(0), rank_at(1))
    for number, run in enumerate(others):
        assert assembly.joined(run, f"host-{run}", Successor(run, f"10.0.0.{number}", 9), 0.0)
    return assembly


numbers = st.integers(-1, (1 << 63) - 1)
flags = st.booleans()
rows = st.builds(
    RankProgress,
    st.integers(0, 1 << 24),
    st.just(1),
    numbers,
    numbers,
    waiting=st.one_of(st.none(), flags),
    busy=flags,
    coming=flags,
    works=flags,
    counted=st.integers(0, (1 << 63) - 1),
    ended=st.integers(0, (1 << 63) - 1),
)


@given(
    st.lists(rows, max_size=6, unique_by=lambda row: row.rank),
    st.frozensets(st.integers(0, 1 << 24), max_size=5),
)
def test_a_beat_comes_as_it_was_sent(ranks: list[RankProgress], more: frozenset[int]) -> None:
    """But for process ids, which are a node's own."""
    known = more | {rank.rank for rank in ranks}
    sent = NodeBeat(3, 1 << 20, 2.0, tuple(ranks), known)
    ours = tuple(replace(rank, pid=-1 - rank.rank) for rank in ranks)
    assert unpacked(packed(sent)) == replace(sent, ranks=ours)


@given(st.binary(max_size=300))
def test_other_bytes_are_no_beat_or_a_whole_one(data: bytes) -> None:
    """Whatever a count in them says."""
    try:
        beat = unpacked(data)
    except BeatError:
        return
    assert len(data) == 20 + 37 * len(beat.ranks) + 4 * (
        len(beat.known - {r.rank for r in beat.ranks})
    )


def test_ranks_are_whose_they_were_first() -> None:
    """Another supervisor that claims them is not heard about them; the leader's own never are."""
    assembly = led("b", "c")
    assembly.heard("b", beat_of(rank_at(2), rank_at(3)), 1.0)
    assembly.heard("c", beat_of(rank_at(0, 99), rank_at(3, 99), rank_at(4)), 1.0)
    assert assembly.ranks_of("c") == {4}
    look = assembly.look(ProgressLook(1.0, (rank_at(0), rank_at(1))), 1.0)
    assert sorted(rank.rank for rank in look.ranks) == [0, 1, 2, 3, 4]
    assert {rank.finished for rank in look.ranks} == {7}


def test_ranks_of_a_node_that_is_lost_may_come_from_another() -> None:
    """A launcher that replaces nodes starts them there."""
    assembly = led("b", "c")
    assembly.heard("b", beat_of(rank_at(2)), 1.0)
    assembly.lost("b")
    assembly.heard("c", beat_of(rank_at(2)), 2.0)
    assert assembly.ranks_of("c") == {2}


@pytest.mark.parametrize(
    ("beat", "at_s", "seen"),
    [
        (beat_of(*map(rank_at, range(2, 8))), 2.0, True),
        (beat_of(*map(rank_at, range(2, 7))), 2.0, False),
        (beat_of(*map(rank_at, range(2, 8))), 19.0, False),
        (beat_of(*map(rank_at, range(2, 8)), attempt=1), 2.0, False),
    ],
)
def test_only_what_all_tell_of_now_is_the_whole_job(
    beat: NodeBeat,
    at_s: float,
    seen: bool,  # noqa: FBT001 - a table
) -> None:
    """A rank that nobody tells of, an old look, another attempt: then ranks are elsewhere."""
    assembly = led("b")
    assembly.heard("b", beat, 1.0)
    look = assembly.look(ProgressLook(at_s, (rank_at(0), rank_at(1)), elsewhere=True), at_s)
    assert look.elsewhere is not seen
    assert look.lost is (at_s > SILENT_S)


def test_a_job_is_ended_on_the_view_of_all_nodes_alone() -> None:
    """Each of them has answered in this incident, and looks now."""
    assembly = led("b", "c")
    for run, ranks in (("b", (2, 3, 4)), ("c", (5, 6, 7))):
        assembly.heard(run, beat_of(*map(rank_at, ranks)), 1.0)
    assembly.open(NEWS)
    assembly.gave("b", 1)
    assert assembly.why_not_all(2.0) == "host-c did not answer"
    assembly.gave("c", 7)
    assert assembly.why_not_all(2.0) == "host-c did not answer", "it is of no incident that is"
    assembly.gave("c", 1)
    assert assembly.why_not_all(2.0) == ""
    assert assembly.why_not_all(19.0) == "host-b, host-c did not answer", "that was seen long ago"
    assembly.lost("c", well=True)
    assert assembly.why_not_all(2.0) == "no supervisor tells of ranks 5-7"


def test_who_gave_nothing_is_named_with_its_ranks_and_why() -> None:
    """One that is lost has its ranks all the same."""
    assembly = led("b", "c")
    assembly.heard("b", beat_of(rank_at(2)), 1.0)
    assembly.heard("c", beat_of(rank_at(3)), 1.0)
    assembly.lost("b")
    assembly.open(NEWS)
    late = assembly.without_part(5.0)
    assert [(each.host, each.ranks) for each in late] == [("host-b", (2,)), ("host-c", (3,))]
    assert "not been heard of for 4 s" in late[0].why
    assert late[1].why == ""


def test_an_alarm_sees_all_nodes_as_one() -> None:
    """The waiting ranks are here and the one that stands still is there: seconds, not minutes."""
    watch, assembly = HangWatch(300.0, 1.0, auto=True), led("b")
    event, second = None, 0
    for second in range(1, 60):
        finished = min(second, 30)
        there = [rank_at(rank, finished, waiting=rank != 7) for rank in range(2, 8)]
        assembly.heard("b", unpacked(packed(beat_of(*there))), float(second))
        mine = ProgressLook(float(second), (rank_at(0, finished), rank_at(1, finished)), True)  # noqa: FBT003 - elsewhere
        event = watch.see(assembly.look(mine, float(second)))
        if event is not None:
            break
    assert isinstance(event, Alarm)
    assert (second, event.waiting) == (38, (0, 1, 2, 3, 4, 5, 6))
    assert "7 of 8 ranks wait" in event.reason


def test_ranks_that_come_into_view_after_an_alarm_have_not_moved() -> None:
    """Their supervisor is late, or was frozen; only what they do from then on is news."""
    watch, assembly = HangWatch(10.0, 1.0), led("b")
    mine = [ProgressLook(float(s), (rank_at(0), rank_at(1)), elsewhere=True) for s in range(30)]
    events = [watch.see(assembly.look(look, look.time_s)) for look in mine[:15]]
    assert any(isinstance(event, Alarm) for event in events)
    for second in (15, 16):
        assembly.heard("b", unpacked(packed(beat_of(rank_at(2)))), float(second))
        assert watch.see(assembly.look(mine[second], float(second))) is None
    assembly.heard("b", unpacked(packed(beat_of(rank_at(2, 8)))), 17.0)
    assert isinstance(watch.see(assembly.look(mine[17], 17.0)), Resumed)


def test_a_rank_out_of_view_has_not_stood_still() -> None:
    """Its work put the alarm off; while its supervisor is frozen, it may work on."""
    watch, assembly = HangWatch(5.0, 1.0), led("b")
    mine = (rank_at(0), rank_at(1))
    works = replace(rank_at(2, waiting=False), busy=True)

    def at(second: int, there: RankProgress | None) -> object:
        if there is not None:
            assembly.heard("b", unpacked(packed(beat_of(there))), float(second))
        look = ProgressLook(float(second), mine, elsewhere=True)
        return watch.see(assembly.look(look, float(second)))

    assert any(isinstance(at(second, works), Alarm) for second in range(1, 9))
    watch.put_off((2,))
    assert [at(second, works) for second in range(9, 12)] == [None] * 3
    assert [at(second, None) for second in range(12, 60)] == [None] * 48
    still = [at(second, rank_at(2, waiting=False)) for second in range(60, 70)]
    assert any(isinstance(event, Alarm) and event.again for event in still)


# ------------------------------------------------------------------ elections

LINE = tuple(Successor(run, f"10.0.0.{n}", 9) for n, run in enumerate("abcd"))


def test_each_waits_for_the_turns_of_those_before_it() -> None:
    """And asks them meanwhile, after the rendezvous host."""
    waiting = Succession("c", LINE)
    waiting.lost(100.0)
    assert [waiting.next() for _ in range(4)] == [None, *LINE[:2], None]
    assert not waiting.is_due(100.0 + 3 * TURN_S - 0.1)
    assert waiting.is_due(100.0 + 3 * TURN_S)


def test_no_alarm_is_raised_while_one_of_the_line_may_yet_lead() -> None:
    """Each that was left would raise one of its own: all are given their turns, and no more."""
    waiting = Succession("c", LINE)
    assert not waiting.is_open(50.0)
    waiting.lost(100.0)
    assert [waiting.is_open(100.0 + turns * TURN_S) for turns in (0, 4, 5)] == [True, True, False]
    waiting.led_by(LINE)
    assert not waiting.is_open(101.0)


def test_who_has_met_no_leader_and_who_is_in_no_line_never_leads() -> None:
    """It would lead nobody."""
    for stranger in (Succession("z"), Succession("z", LINE)):
        stranger.lost(1.0)
        assert not stranger.is_due(1e9)
    assert Succession("z").next() is None


class Network(RuleBasedStateMachine):
    """Supervisors that elect each other while any of them is lost, frozen or comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.alive = dict.fromkeys("abcd", True)
        self.succession = {name: Succession(name, LINE) for name in "abcd"}
        self.leads: set[str] = set()
        self.follows: dict[str, str] = {}
        for each in self.succession.values():
            each.lost(0.0)

    @rule(name=st.sampled_from("abcd"))
    def lose(self, name: str) -> None:
        """A node dies."""
        self.alive[name] = False
        self.leads.discard(name)
        self.follows.pop(name, None)

    @rule(seconds=st.integers(1, 20))
    @precondition(lambda self: any(self.alive.values()))
    def pass_by(self, seconds: int) -> None:
        """Each does what a meeting does, once a second."""
        for _ in range(seconds):
            self.now += 1.0
            for name in filter(self.alive.get, "abcd"):
                self._step(name)

    def _step(self, name: str) -> None:
        mine = self.succession[name]
        if name in self.leads:
            return
        if name in self.follows:
            if self.follows[name] in self.leads:
                return
            del self.follows[name]
            mine.lost(self.now)
        if mine.is_due(self.now):
            self.leads.add(name)
            return
        place = mine.next()
        if place is not None and place.run in self.leads:
            self.follows[name] = place.run
            mine.led_by(LINE)

    @invariant()
    def one_leads_at_most(self) -> None:
        """On a network that carries all, with turns that are long enough to ask all before."""
        assert len(self.leads) <= 1

    def teardown(self) -> None:
        """Whoever is left agrees in the end."""
        alive = [name for name in "abcd" if self.alive[name]]
        if alive:
            self.pass_by(int(SILENT_S + 8 * TURN_S))
            (leader,) = self.leads
            assert all(name == leader or self.follows[name] == leader for name in alive)


TestNetwork = Network.TestCase
TestNetwork.settings = settings(max_examples=30, stateful_step_count=8, deadline=None)
