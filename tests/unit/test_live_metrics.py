"""Running ranks in the text format of Prometheus."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from unhang.run.watching.now import JobNow, RankNow
from unhang.serve.pages import metrics


def test_ranks_are_told_with_their_job() -> None:
    """A name that would end its label does not; what is not known is left out."""
    ranks = (
        RankNow(0, 11, True, "ready", 41, 2.5, 0, True, "all_reduce", 1.5, 7),  # noqa: FBT003
        RankNow(1, 12, False, "ready", 40, None, 1, None, "", None, None),  # noqa: FBT003
    )
    text = metrics((), 0, [JobNow('a "b" \\', "node01", 2, ranks)])
    found = {family.name: family.samples for family in text_string_to_metric_families(text)}
    alive = {s.labels["rank"]: s.value for s in found["unhang_rank_alive"]}
    assert alive == {"0": 1.0, "1": 0.0}
    assert [s.value for s in found["unhang_rank_finished_calls"]] == [41.0, 40.0]
    assert [s.labels["rank"] for s in found["unhang_rank_quiet_seconds"]] == ["0"]
