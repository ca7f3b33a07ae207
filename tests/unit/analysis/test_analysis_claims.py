"""Facts first, words last: how sure claims are, how they are settled, and that all have words."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

import unhang.analysis.findings
from unhang.analysis.judgement import MAX_CLAIMS, settle
from unhang.analysis.rules.idle import IDLE
from unhang.analysis.rules.never_joined import NEVER_JOINED
from unhang.analysis.rules.silent_rank import SILENT_RANK
from unhang.analysis.rules.skipped_call import SKIPPED_CALL
from unhang.analysis.rules.telling import _VERDICTS, words_of
from unhang.analysis.rules.wait_cycle import WAIT_CYCLE
from unhang.analysis.shared.claims import Bearing, Claim, Doubt, Observation, Stance, confidence_of

ANALYSIS = Path(unhang.analysis.findings.__file__).parents[1]


@dataclass(frozen=True)
class Nothing:
    """Facts of no claim of the analysis."""


def claim(*doubts: Doubt, **more: object) -> Claim:
    """A claim about one rank."""
    return Claim(kind=NEVER_JOINED, about=Nothing(), **{"culprits": (3,), **more}, doubts=doubts)


def test_doubts_of_one_rule_do_not_add_up() -> None:
    """The worst one counts: they are about the same evidence."""
    assert confidence_of(claim()) == "high"
    assert confidence_of(claim(Doubt.MEMBER_UNSEEN, Doubt.COUNT_UNSURE)) == "medium"
    assert confidence_of(claim(Doubt.MEMBER_UNSEEN, Doubt.OTHER_CAUSE)) == "low"


AGREES, DENIES, ADDS = Bearing.COUNTERS_AGREE, Bearing.COUNTERS_DENY, Bearing.STANDS


@pytest.mark.parametrize(
    ("doubts", "bearings", "expected"),
    [
        ((Doubt.MEMBER_UNSEEN,), (AGREES,), "high"),
        ((Doubt.MEMBER_UNSEEN,), (ADDS,), "medium"),
        ((Doubt.OTHER_CAUSE,), (AGREES,), "low"),
        ((), (DENIES,), "medium"),
        ((Doubt.MEMBER_UNSEEN,), (DENIES,), "low"),
        ((Doubt.MEMBER_UNSEEN,), (DENIES, AGREES), "low"),
        ((), (Bearing.PAUSES,), "low"),  # it raises a doubt of its own
    ],
)
def test_what_other_sources_saw_counts(
    doubts: tuple[Doubt, ...], bearings: tuple[Bearing, ...], expected: str
) -> None:
    """A support outweighs a doubt, a contradiction takes a step; the two do not cancel."""
    found = claim(*doubts)
    for source, bearing in zip(("logs", "stacks"), bearings, strict=False):
        found = found.seen(Observation(source=source), bearing)
    assert confidence_of(found) == expected


def test_one_source_counts_once() -> None:
    """Two lines of the same logs are no two contradictions."""
    twice = claim()
    for _ in range(2):
        twice = twice.seen(Observation(source="logs"), DENIES)
    assert confidence_of(twice) == "medium"
    both = twice.seen(Observation(source="stacks"), DENIES)
    assert confidence_of(both) == "low"


def test_support_makes_nobody_sure_of_nobody() -> None:
    """A claim that names nobody is not made sure by a source that says the same."""
    found = claim(Doubt.NOBODY_ABSENT, culprits=())
    assert confidence_of(found.seen(Observation(source="logs"), AGREES)) == "medium"


@given(st.permutations(list(Bearing)))
def test_when_something_was_seen_makes_no_difference(order: list[Bearing]) -> None:
    """What is told beside a claim stands in the order of the table, doubts with it."""
    found, same = claim(Doubt.ONE_MOMENT), claim(Doubt.ONE_MOMENT)
    for bearing in Bearing:
        found = found.seen(Observation(source="logs"), bearing)
    for bearing in order:
        same = same.seen(Observation(source="logs"), bearing)
    assert same == found
    assert same.all_doubts == found.all_doubts


@pytest.mark.parametrize("bearing", list(Bearing))
def test_every_weight_has_a_reason(bearing: Bearing) -> None:
    """What decides nothing weighs nothing, and two steps at most are between high and low."""
    assert bearing.why
    assert 0 <= bearing.weight <= 2 * (bearing.stance is not Stance.BESIDE)


def test_a_mistake_is_told_once() -> None:
    """Victims are taken together; claims without the same mistake stay apart."""

    def skipped(victim: int, mistake: object) -> Claim:
        victims = (victim,)
        return Claim(kind=SKIPPED_CALL, about=Nothing(), victims=victims, mistake=mistake)

    found, notes = settle([skipped(1, "a"), skipped(2, "a"), skipped(3, "b"), skipped(4, None)])
    assert not notes
    assert [each.victims for each in found] == [(1, 2), (3,), (4,)]


def test_silence_is_no_cause_beside_one() -> None:
    """A silent rank is suspected only where nothing else explains the hang."""
    silent = Claim(kind=SILENT_RANK, about=Nothing(), culprits=(1,), victims=(2, 3))
    assert settle([silent])[0][0].is_cause
    circle, other = settle([silent, Claim(kind=WAIT_CYCLE, about=Nothing())])[0]
    assert circle.kind is WAIT_CYCLE
    assert (other.role, confidence_of(other)) == ("observation", "low")


def test_ranks_are_ordered_as_numbers() -> None:
    """Of claims that weigh the same, the one with the lower ranks stands first."""
    circles = [Claim(kind=WAIT_CYCLE, about=Nothing(), victims=(n, n + 1)) for n in (16, 8, 24)]
    found, _ = settle(circles)
    assert [each.victims[0] for each in found] == [8, 16, 24]


def test_what_is_left_out_is_noted() -> None:
    """A bound on the number of findings says how many it cut, those of fewest victims."""
    many = [
        Claim(kind=WAIT_CYCLE, about=Nothing(), victims=tuple(range(n)))
        for n in range(1, MAX_CLAIMS + 3)
    ]
    found, notes = settle(many)
    assert len(found) == MAX_CLAIMS
    assert len(found[-1].victims) == 1 + 2
    assert notes[0].text.startswith("2 further findings")


def test_the_role_is_that_of_the_kind_unless_said() -> None:
    """Rules say a role only where it differs."""
    assert Claim(kind=IDLE, about=Nothing()).role == "observation"
    assert Claim(kind=NEVER_JOINED, about=Nothing()).role == "cause"
    assert Claim(kind=NEVER_JOINED, about=Nothing(), role="consequence").role == "consequence"


def test_facts_without_words_are_a_mistake() -> None:
    """Whoever adds a claim adds its words."""
    with pytest.raises(TypeError, match="no words for Nothing"):
        words_of(Nothing(), claim())


# ------------------------------------------------------------------ the house


def modules(folder: str) -> list[str]:
    """Names of the modules of one folder of the analysis."""
    found = iter_modules([str(ANALYSIS / folder)])
    return [f"unhang.analysis.{folder}.{module.name}" for module in found]


def test_all_words_are_about_facts_that_rules_state() -> None:
    """What words are registered for is a frozen struct, and comes from a rule."""
    import_module("unhang.analysis.words")
    registered = tuple(_VERDICTS)
    assert len(registered) > len(modules("findings"))
    for about in registered:
        assert issubclass(about, Struct), about
        assert about.__struct_config__.frozen, about
        assert about.__module__.startswith("unhang.analysis."), about
        assert not about.__module__.startswith("unhang.analysis.words"), about


def test_every_function_has_a_name() -> None:
    """A traceback, a profile and a search find the words of a finding: none is called `_`."""
    unnamed = [
        f"{path.relative_to(ANALYSIS)}:{node.lineno}"
        for path in ANALYSIS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name == "_"
    ]
    assert unnamed == []


@pytest.mark.parametrize("name", modules("findings"))
def test_rules_know_no_words(name: str) -> None:
    """No rule imports words or makes findings, and none asks a kind for its code."""
    tree = ast.parse(inspect.getsource(import_module(name)))
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {module for module in imported if ".analysis.words" in module}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not names & {"Finding", "Words"}
    asked = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not asked & {"code", "summary"}
