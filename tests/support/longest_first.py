"""What a worker of `pytest -n 6 --dist loadfile` gets next: the longest file of those left.

A file goes to one worker, so that what its tests share is made once. Files of long tests that share
nothing are given test by test. Short ones come last: all workers end at about the same time.
"""

from __future__ import annotations

from collections import Counter

import pytest
from xdist.scheduler import LoadScopeScheduling

LONGEST = {
    "collect_clusters": 150, "cli_doctor": 140, "html_browser": 120, "ray": 120, "guides": 110,
    "stacks_live": 110, "run_apart": 100, "collect_tools": 100, "doctor_clusters": 90,
    "cli_serve": 80, "wheel": 70, "recorder_gloo": 70, "kubernetes_recipe": 60, "prometheus": 60,
    "starved_live": 60, "cli_streams": 60,
    "cli_numerics": 60, "docs_commands": 60, "secrets": 50, "cli_trace": 50, "perfetto": 40,
    "recorder_edges": 40, "recorder_full": 40, "run_transparent": 30, "cli_bad_input": 30,
    "isolated_commands": 30, "examples": 30, "logs_torchrun": 20, "cli_mcp": 20, "cli_core": 20,
}  # fmt: skip
"""Files of tests/integration by what they take alone, waits included, in seconds: roughly."""
APART = {
    "run_hangs": 420, "run_work": 400, "lab_live": 230, "run_edges": 120, "run_nodes": 90,
    "run_births": 90, "rehearse": 80, "run_faults": 50, "run_output": 40, "pausing_live": 30,
}  # fmt: skip
"""Those that are given test by test."""
ELSEWHERE_S = {"integration": 15.0, "nccl": 90.0}
"""What a file takes that is in neither; next to nothing in other folders."""


def _place(nodeid: str) -> tuple[str, str]:
    """The folder of a test and the name of its file, without what all have."""
    *folders, name = nodeid.partition("::")[0].split("/")
    return folders[-1] if folders else "", name.removeprefix("test_").removesuffix(".py")


def unit_of(nodeid: str) -> str:
    """What is handed out together: the file of a test, or the test alone."""
    folder, name = _place(nodeid)
    apart = folder == "integration" and name in APART
    return nodeid if apart else nodeid.partition("::")[0]


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """The longest first; tests of a file stay as they are."""
    tests = Counter(_place(item.nodeid) for item in items)

    def seconds(item: pytest.Item) -> float:
        folder, name = place = _place(item.nodeid)
        if folder == "integration" and name in APART:
            return APART[name] / tests[place]
        known = LONGEST.get(name) if folder == "integration" else None
        return known or ELSEWHERE_S.get(folder, 0.0)

    return sorted(items, key=seconds, reverse=True)


class LongestFirst(LoadScopeScheduling):
    """Hands out files, and single tests, in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: object = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
