"""Run tools over what real jobs left: live captures of Gloo, and dumps of the real NCCL recorder.

Both lie in directories or archives with a truth beside them; nothing is simulated here.
"""

from __future__ import annotations

import json
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lab.score.running import Result, look_with
from lab.truth import TRUTH_FILE, Truth, from_json, read_truth
from unhang.errors import InputError

REAL = Path(__file__).parents[2] / "tests" / "data" / "nccl"
"""Dumps by the real ProcessGroupNCCL: a folder per build of torch, an archive per case."""


def real_cases(folder: Path = REAL) -> Iterator[tuple[Path, Truth]]:
    """Every archive of a folder of folders with its truth, by name."""
    for place in sorted(folder.glob(f"*/{TRUTH_FILE}")):
        for name, case in sorted(json.loads(place.read_text(encoding="utf-8")).items()):
            yield place.parent / f"{name}.tar.gz", from_json(case)


def score_real(
    tools: Sequence[str],
    *,
    limit_s: float = 20.0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Result]:
    """Run tools over the dumps of the real recorder; each is unpacked for those who need it."""
    cases = list(real_cases())
    results = []
    for done, (archive, truth) in enumerate(cases, start=1):
        name = f"{archive.parent.name}/{archive.name.removesuffix('.tar.gz')}"
        with tempfile.TemporaryDirectory(prefix="unhang-lab-") as folder:
            with tarfile.open(archive) as packed:
                packed.extractall(folder, filter="data")
            verdicts = look_with(tools, Path(folder), limit_s)
        size = truth.world_size
        results.append(Result(f"real/{name}", truth.fault, "real", size, "nccl", truth, verdicts))
        if progress:
            progress(done, len(cases))
    return results


def score_captures(folder: Path, tools: Sequence[str], *, limit_s: float = 20.0) -> list[Result]:
    """Run tools over live captures: every directory below `folder` that has a truth.json.

    Raises:
        InputError: There is none.
    """
    places = sorted(path.parent for path in folder.rglob(TRUTH_FILE))
    if not places:
        raise InputError(f"There is no capture in {folder}.", "Make one: python -m lab live")
    return [_looked(place, folder, tools, limit_s) for place in places]


def _looked(place: Path, folder: Path, tools: Sequence[str], limit_s: float) -> Result:
    truth = read_truth(place)
    verdicts = look_with(tools, place, limit_s)
    name = place.relative_to(folder).as_posix()
    return Result(name, truth.fault, "live", truth.world_size, "gloo", truth, verdicts)


def capture_all(folder: Path, progress: Callable[[int, int], None] | None = None) -> None:
    """Run every live fault once and keep what it leaves, each in a directory of its own.

    Raises:
        UsageError: torch is not installed.
        ToolError: A job did not get stuck where it should.
    """
    from lab.live.capture import capture, checked_request
    from lab.live.faults import FAULTS

    for done, fault in enumerate(FAULTS.values(), start=1):
        capture(checked_request(fault), folder / fault.name)
        if progress:
            progress(done, len(FAULTS))
