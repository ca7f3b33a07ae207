"""Every command that a report advises runs as it is printed: a sample of `python -m lab advice`."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.advice.trying import Tried, shape_of, try_archive, try_folder, try_spec
from lab.live.faults import FAULTS
from lab.score.captures import REAL
from lab.simulate.corpus import CaseSpec
from lab.simulate.writing import simulate
from unhang.cli.main import main

ROOT = Path(__file__).parents[2]
SIMULATED = (
    CaseSpec("op", "wrong-op", "fsdp", 8, "plain", 0),
    CaseSpec("pipeline", "pipeline-stall", "pp", 4, "plain", 0),
    CaseSpec("device", "device-error", "hsdp", 16, "nccl-status", 0),
    CaseSpec("network", "fabric-stuck", "ddp", 8, "hosts", 0),
    CaseSpec("slow", "late-rank", "ddp", 8, "plain", 0),
    CaseSpec("lost", "most-dumps-lost", "ddp", 8, "few", 0),
    CaseSpec("off", "recorder-off", "ddp", 8, "off", 0),
    CaseSpec("empty", "all-dumps-empty", "ddp", 4, "empty", 0),
)


def see_that_they_ran(tried: list[Tried]) -> None:
    """There was something to run, and nothing failed."""
    assert tried
    assert [(each.command, each.failure) for each in tried if each.failure] == []


@pytest.mark.parametrize("name", sorted(FAULTS.keys() - {"healthy"}))
def test_what_is_advised_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No word is missing, no rank or group is unknown, and something is shown."""
    monkeypatch.chdir(ROOT)
    see_that_they_ran(list(try_folder(name, Path("examples") / name)))


@pytest.mark.parametrize("spec", SIMULATED, ids=lambda spec: spec.name)
def test_what_is_advised_for_other_faults_runs(spec: CaseSpec) -> None:
    """Groups, hosts and devices, too."""
    see_that_they_ran(try_spec(spec))


@pytest.mark.parametrize("name", ["2.2.2/skipped_call-timeout", "2.13.0/crossed_blocking-pipe"])
def test_what_is_advised_for_real_dumps_runs(name: str) -> None:
    """Of the oldest and of the newest recorder; the archive itself is a case, too."""
    archive = next(REAL.glob(f"{name}.tar.gz"))
    see_that_they_ran(try_archive(archive))
    see_that_they_ran(list(try_folder(name, archive)))


def test_dumps_of_open_calls_alone_of_a_healthy_job_are_judged(tmp_path: Path) -> None:
    """They hold no call at all, only counters: nothing is advised, and nothing breaks."""
    simulate(CaseSpec("quiet", "healthy", "ddp", 8, "active", 0), tmp_path / "job")
    assert main(["diagnose", str(tmp_path / "job" / "dumps")]) == 0
    assert list(try_folder("quiet", tmp_path / "job" / "dumps")) == []


def test_a_shape_has_neither_numbers_nor_names() -> None:
    """What differs in ranks, hosts and groups alone is one shape."""
    one = shape_of("unhang entries /a/b --ranks 0-3 --group dp_1", Path("/a/b"))
    assert one == shape_of("unhang entries /c --ranks 7-9 --group tp", Path("/c"))
    assert one == "unhang entries CASE --ranks N-N --group N"


def test_a_command_that_does_not_run_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that is not there, an option that is not ours, another program."""
    wrong = ["unhang entries examples/crossed-order --ranks 99", "unhang doctor --odd", "rm x"]
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("lab.advice.trying.advised", lambda _: wrong)
    tried = try_folder("wrong", Path("examples/crossed-order"))
    assert all(each.failure for each in tried)
