"""The real part by the version of torch that wrote its dumps, as a section of docs/accuracy.md."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from lab.score.running import Result, tally

_HEAD = """## Real part by version of torch

Written by `python -m lab score --part real --tools unhang --versions docs/accuracy.md`. The same
jobs, dumped by each version's own recorder for "nccl": ProcessGroupNCCL's, and from 2.15 on torch's
hook. 2.14.1 is as it comes; with TORCH_DIST_USE_NCCL2=1 torch attaches its hook to no group there,
and nothing of its own holds a call. These are all captures that are there, read by unhang alone.
The real part above stands beside peers, which take hours: it is of the 646 captures of 23 November
2026, and of the rules of that day.

| torch | captures | exact culprit set | right code | false alarms on healthy jobs |
|---|---|---|---|---|
"""


def by_version(results: Sequence[Result]) -> str:
    """A row for each folder of captures, oldest version first."""
    folders: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        folders[result.case.split("/")[1]].append(result)
    rows = []
    for folder in sorted(folders, key=_age):
        score = tally(folders[folder], "unhang")
        rows.append(
            f"| {folder.replace('-', ', with ')} | {score.cases} | {score.exact} | {score.code} | "
            f"{score.false_alarms} of {score.healthy} |\n"
        )
    return _HEAD + "".join(rows)


def _age(folder: str) -> tuple[list[int], str]:
    version, _, how = folder.partition("-")
    return [int(part) for part in version.split(".")], how
