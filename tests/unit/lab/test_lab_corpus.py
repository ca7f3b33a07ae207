"""The corpus: fixed, complete, and true to what each class says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import unhang
from lab.faults import FAULTS
from lab.faults.composed import COMPOSED
from lab.layouts.table import LAYOUTS
from lab.simulate.corpus import CONDITIONS, PARTS, CaseSpec, cases, make, spec_named
from lab.simulate.writing import simulate
from lab.truth import Cause, Truth, from_json
from unhang.errors import OutputError, UsageError


def test_the_corpus_is_broad() -> None:
    """At least thirty classes, several hundred cases, every layout, healthy and not."""
    assert len([f for f in FAULTS.values() if f.code]) >= 30
    assert len(cases("tuned")) >= 400
    assert {spec.layout for spec in cases("tuned")} == set(LAYOUTS)
    assert {spec.condition for spec in cases("tuned")} <= set(CONDITIONS)
    assert {16_384} <= {spec.ranks for part in PARTS for spec in cases(part)}


def test_every_code_that_dumps_can_show_has_a_class() -> None:
    """UH602, UH7xx and UH8xx need other evidence than dumps."""
    shown = {fault.code for fault in FAULTS.values()}
    accepted = {"UH103"}  # shown by lost files, whatever the class
    wanted = {
        "UH101", "UH102", "UH103", "UH104", "UH105", "UH201", "UH202", "UH203", "UH204", "UH205",
        "UH301", "UH302", "UH303", "UH304", "UH401", "UH402", "UH501", "UH601", "UH901",
    }  # fmt: skip
    assert wanted <= shown | accepted


def test_members_of_finished_coalesced_calls_are_finished(tmp_path: Path) -> None:
    """A dump of unfinished calls keeps them for ever; the counters say that they are over."""
    simulate(spec_named("tuned/never-joined-28"), tmp_path / "case")
    report = unhang.diagnose(unhang.load(tmp_path / "case" / "dumps"))
    assert [(f.code, f.culprits) for f in report.causes] == [("UH101", (0,))]


def test_parts_share_no_seed() -> None:
    """What rules were tuned on says nothing about the held-out part."""
    assert not {s.seed for s in cases("tuned")} & {s.seed for s in cases("held-out")}
    assert set(COMPOSED) <= {spec.fault for spec in cases("held-out")}
    assert not set(COMPOSED) & {spec.fault for spec in cases("tuned")}


def test_every_class_says_what_can_be_known() -> None:
    """The docstring of a class is its documentation."""
    assert all(len(fault.meaning) > 40 for fault in (*FAULTS.values(), *COMPOSED.values()))


@pytest.mark.parametrize("fault", [*FAULTS, *COMPOSED])
def test_each_class_can_be_made(fault: str) -> None:
    """The first small case of every class works, and its truth fits the class."""
    spec = next(s for part in PARTS for s in cases(part) if s.fault == fault and s.ranks <= 64)
    truth = make(spec).truth
    code = {**FAULTS, **COMPOSED}[fault].code
    if truth.status[0] == "problem":
        lost = {"UH103"} if spec.condition.startswith("culprit") else set()
        assert {c for cause in truth.causes for c in cause.codes} & {code, *lost}
    assert all(0 <= rank < spec.ranks for rank in truth.culprits)


def test_a_case_is_the_same_everywhere(tmp_path: Path) -> None:
    """Equal specifications write equal bytes."""
    spec = spec_named("tuned/never-joined-0")
    for name in ("one", "two"):
        simulate(spec, tmp_path / name)
    files = [sorted((tmp_path / name).rglob("*")) for name in ("one", "two")]
    contents = [[p.read_bytes() for p in paths if p.is_file()] for paths in files]
    assert contents[0] == contents[1]


def test_truth_survives_json(tmp_path: Path) -> None:
    """truth.json holds the truth."""
    made = simulate(spec_named("tuned/wrong-shape-0"), tmp_path / "case")
    text = (tmp_path / "case" / "truth.json").read_text()
    assert from_json(json.loads(text)) == made.case.truth


def test_a_used_directory_is_refused(tmp_path: Path) -> None:
    """Nothing is overwritten or mixed."""
    (tmp_path / "here").write_text("mine")
    with pytest.raises(OutputError):
        simulate(spec_named("tuned/healthy-0"), tmp_path)


def test_faults_that_do_not_fit_are_refused() -> None:
    """With the layouts that would fit."""
    with pytest.raises(UsageError, match="does not fit"):
        make(CaseSpec("x", "split-mismatch", "ddp", 8, "plain", 1))


def test_two_faults_accept_the_union() -> None:
    """Exactness is about the union of all named ranks."""
    truth = Truth(("problem",), (Cause(("UH101",), (3,)), Cause(("UH401",), (), ((7,),))), 8)
    assert truth.accepts(frozenset({3}))
    assert truth.accepts(frozenset({3, 7}))
    assert not truth.accepts(frozenset({7}))


def test_a_member_is_not_left_out_of_its_own_broadcast() -> None:
    """A root that is no member is refused by torch: such a place does not fit, another one does."""
    spec = CaseSpec("membership", "membership", "megatron", 16, "nccl-plain", 7_836_309)
    assert make(spec).truth.causes[0].codes == ("UH205",)
