"""Tools under test behind one protocol: ours through its public functions, peers as they come.

A peer gets its best reading: the ranks that it names first, in the order in which it prints, with
the codes that come nearest to its words, and a second try with its option for missing files where
it refuses the first. Peers run in a process of their own with a limit of time, because they may
crash or run for hours; nothing of theirs is imported into this one unless they are asked for.
"""

from __future__ import annotations

import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

from lab.score.verdict import Blame, Verdict
from lab.truth import Point
from unhang.errors import UnhangError


class Tool(Protocol):
    """Something that looks at a directory of dumps and says what is wrong."""

    @property
    def name(self) -> str:
        """As it is called in tables."""

    def available(self) -> bool:
        """Whether it is installed."""

    def look(self, folder: Path, limit_s: float) -> Verdict:
        """Its verdict; failures and exceeded limits are verdicts of status "error"."""


@dataclass(frozen=True, slots=True)
class Unhang:
    """This project, as a black box: files in, report out."""

    name: str = "unhang"

    def available(self) -> bool:
        """Always."""
        return True

    def look(self, folder: Path, limit_s: float) -> Verdict:
        """Load and diagnose at default settings."""
        del limit_s
        from unhang.analysis import diagnose
        from unhang.ingest import load
        from unhang.report import to_json

        start = time.perf_counter()
        try:
            verdict = verdict_of(to_json(diagnose(load([folder]))))
        except UnhangError as error:
            verdict = Verdict("insufficient", detail=error.message)
        except Exception as error:  # noqa: BLE001 - a crash of the tool under test is a result
            verdict = Verdict("error", detail=f"{type(error).__name__}: {error}")
        return Verdict(verdict.status, verdict.blames, verdict.detail, time.perf_counter() - start)


def verdict_of(report: Mapping[str, Any]) -> Verdict:
    """What a report accuses whom of: its causes, and late ranks of a slow job.

    Args:
        report: As JSON, as a program sees it (schema "unhang.report/1").
    """
    status = report["status"]
    judging = [
        finding
        for finding in report["findings"]
        if finding["role"] == "cause" or (status == "slow" and finding["code"] == "UH501")
    ]
    return Verdict(status, tuple(map(_blame, judging)), report.get("summary", ""))


def _blame(finding: Mapping[str, Any]) -> Blame:
    points = []
    if group := finding.get("group"):
        seqs = {finding["seq"], *(side["seq"] for side in finding["calls"])}
        points = [
            Point(group["name"], group["description"], -1 if seq is None else seq)
            for seq in sorted(seqs, key=str)
        ]
    points += [Point(file=site["file"], line=site["line"]) for site in finding["sites"]]
    culprits = frozenset(finding["culprits"])
    return Blame(finding["code"], culprits, tuple(points), finding["confidence"])


def in_child(work: Callable[[], None], limit_s: float) -> tuple[str, str]:
    """Run something in a forked child; returns its output and why it ended badly, or "".

    Killed when its time is over. Output is what it wrote to file descriptors 1 and 2.
    """
    with tempfile.TemporaryFile() as sink:
        pid = os.fork()
        if not pid:
            _become_child(work, sink.fileno())
        status = _wait(pid, limit_s)
        sink.seek(0)
        text = sink.read().decode(errors="replace")
    if status is None:
        return text, f"not finished after {limit_s:g} s"
    return text, "" if status == 0 else f"ended with {status}"


def _become_child(work: Callable[[], None], output: int) -> None:
    os.dup2(output, 1)
    os.dup2(output, 2)
    code = 1
    try:
        work()
        code = 0
    except BaseException as error:  # noqa: BLE001 - the child must not return into its parent's program
        os.write(2, f"\n{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


def _wait(pid: int, limit_s: float) -> int | None:
    """Exit code of a child, or None after it had to be killed."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


@dataclass(frozen=True, slots=True)
class TorchFrTrace:
    """torch's own analyser, `torchfrtrace`."""

    name: str = "torchfrtrace"

    def available(self) -> bool:
        """Whether torch, with its analyser, is installed."""
        try:
            return find_spec("torch.distributed.flight_recorder") is not None
        except ModuleNotFoundError:
            return False

    def look(self, folder: Path, limit_s: float) -> Verdict:
        """Run it on each folder of dumps."""
        return _telling(lambda place: _frtrace_on(place, limit_s), folder)


def _telling(look: Callable[[Path], Verdict], folder: Path) -> Verdict:
    """The verdict on the first folder of dumps about which a peer says anything."""
    start = time.perf_counter()
    verdicts = [look(place) for place in _leaves(folder)]
    telling = [verdict for verdict in verdicts if verdict.blames]
    failed = [verdict for verdict in verdicts if verdict.status == "error"]
    verdict = (telling or failed or verdicts or [Verdict("error", detail="no files")])[0]
    return replace(verdict, seconds=time.perf_counter() - start)


def _leaves(folder: Path) -> list[Path]:
    """Folders that hold files: a peer that reads one folder of one recorder gets each of them."""
    return sorted({path.parent for path in folder.rglob("*") if path.is_file()}, reverse=True)


def _frtrace_on(folder: Path, limit_s: float) -> Verdict:
    """Run it on one folder; again with --allow-incomplete-ranks if it refuses missing files."""
    from torch.distributed.flight_recorder import fr_trace

    text, failure = in_child(lambda: fr_trace.main([str(folder)]), limit_s)
    if failure and "Missing dump files" in text:
        options = [str(folder), "--allow-incomplete-ranks"]
        text, failure = in_child(lambda: fr_trace.main(options), limit_s)
    verdict = read_torchfrtrace(text)
    if failure and not verdict.blames:
        lines = text.strip().splitlines()
        return Verdict("error", (), f"{failure}: {lines[-1] if lines else ''}")
    return verdict


_FIRST_BLOCK = re.compile(
    r"Not all ranks joining collective, sequence number: (?P<seq>\d+).*?"
    r"group info: (?P<group>[^\n]*).*?missing ranks: \{(?P<missing>[\d, ]*)\}"
    r"|sequence number: (?P<bad_seq>\d+) has errors.*?group info: (?P<bad_group>[^\n]*)"
    r".*?error msg: (?P<errors>[^\n]*)"
    r"|Input/output mismatch in the collective sequence number: (?P<split_seq>\d+)",
    re.DOTALL,
)
_CULPRIT = re.compile(r"Culprit rank (\d+); Error type: ([A-Z_]+)")
_SITE = re.compile(r"^\s*(?P<function>\S+) at (?P<file>[^\n]*):(?P<line>\d+)$", re.MULTILINE)
_NEAREST_CODES: Final = {
    "COLLECTIVE_TYPE_MISMATCH": "UH201",
    "SIZE_OR_SYNTAX_MISMATCH": "UH202",
    "COLLECTIVE_DTYPE_MISMATCH": "UH203",
    "COLLECTIVE_STATE_MISMATCH": "UH402",
}


def read_torchfrtrace(text: str) -> Verdict:
    """The first thing that its output names, in our terms."""
    block = _FIRST_BLOCK.search(text)
    if block is None:
        undecided = "We cannot decide" in text
        return Verdict("insufficient" if undecided else "healthy")
    tail = text[block.end() :]
    following = _FIRST_BLOCK.search(tail)
    sites = _SITE.finditer(tail[: following.start()] if following else tail)
    lines = tuple(Point("", "", -1, m["file"], int(m["line"])) for m in sites)
    if block["missing"] is not None:
        ranks = frozenset(int(rank) for rank in block["missing"].replace(",", " ").split())
        points = (_group_point(block["group"], block["seq"]), *lines)
        return Verdict("problem", (Blame("UH101", ranks, points),))
    if block["split_seq"] is not None:
        return Verdict("problem", (Blame("UH204", frozenset(), lines),))
    found = _CULPRIT.findall(block["errors"])
    ranks = frozenset(int(rank) for rank, _ in found)
    code = _NEAREST_CODES.get(found[0][1], "UH201") if found else "UH201"
    points = (_group_point(block["bad_group"], block["bad_seq"]), *lines)
    return Verdict("problem", (Blame(code, ranks, points),))


def _group_point(info: str, seq: str) -> Point:
    name, _, description = info.strip().partition(":")
    return Point(name, description, int(seq))


@dataclass(frozen=True, slots=True)
class FrAttribution:
    """NVRx's `fr_attribution`, where its code is installed.

    The package on PyPI (0.4.1) comes without it; a checkout of its sources on the path is enough.
    """

    name: str = "fr_attribution"

    def available(self) -> bool:
        """Whether the package with its trace analyser is installed."""
        try:
            return find_spec("nvidia_resiliency_ext.attribution.trace_analyzer") is not None
        except ModuleNotFoundError:
            return False

    def look(self, folder: Path, limit_s: float) -> Verdict:
        """Run its command line on each folder of dumps."""
        return _telling(lambda place: _fr_attribution_on(place, limit_s), folder)


def _fr_attribution_on(folder: Path, limit_s: float) -> Verdict:
    import runpy
    import sys

    module = "nvidia_resiliency_ext.attribution.trace_analyzer.fr_attribution"
    options = [module, "--fr-path", str(folder), "-p", "*"]

    def work() -> None:
        sys.argv = options
        runpy.run_module(module, run_name="__main__")

    text, failure = in_child(work, limit_s)
    if failure:
        lines = text.strip().splitlines()
        return Verdict("error", (), f"{failure}: {lines[-1] if lines else ''}")
    return read_fr_attribution(text)


_COLUMNS = 6


def read_fr_attribution(text: str) -> Verdict:
    """The ranks of all rows of its last table "… | Missing Ranks": a row is a group that waits."""
    missing: set[int] = set()
    inside = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) < _COLUMNS:
            inside = False
        elif cells[-1].endswith("Ranks"):
            inside = cells[-1].startswith("Missing")
            missing = set() if inside else missing
        elif inside:
            missing |= {int(rank) for rank in re.findall(r"\d+", cells[-1])}
    return Verdict("problem", (Blame("UH101", frozenset(missing)),)) if missing else _NOTHING


_NOTHING: Final = Verdict("healthy")


TOOLS: Final[dict[str, Tool]] = {
    tool.name: tool for tool in (Unhang(), TorchFrTrace(), FrAttribution())
}


def available_tools() -> list[str]:
    """Names of the tools that are installed."""
    return [name for name, tool in TOOLS.items() if tool.available()]
