"""What Prometheus makes of our metrics, alert rules and dashboard: promtool, its own checker."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import urlopen

import pytest
from ports import free_port
from report_samples import never_joined

from unhang.reports import render
from unhang.run.incident.notifying import Notifier
from unhang.run.incident.verdict import Verdict
from unhang.run.metrics import _verdict_metrics
from unhang.run.watching.now import GroupNow, JobNow, RankNow
from unhang.serve.pages import metrics
from unhang.serve.past import facts_of_report

pytestmark = pytest.mark.debian("promtool")

ROOT = Path(__file__).parents[2]
GRAFANA, SERVE = ROOT / "contrib" / "grafana", ROOT / "docs" / "serve.md"

STORIES: dict[str, tuple[dict[str, str], set[str]]] = {
    "a case comes": (
        {'unhang_cases{status="problem",instance="a"}': "1x20 2x20",
         'unhang_newest_case_timestamp_seconds{instance="a"}': "0x20 1200x20"},
        {"JobHung"},
    ),
    "cases are cleared away": ({'unhang_cases{status="problem",instance="a"}': "5x20 2x20"}, set()),
    "a host is blamed again": (
        {'unhang_host_culprit_cases{host="n1"}': "3x40",
         'unhang_host_culprit_cases{host="n2"}': "2x40"},
        {"HostBlamedAgain"},
    ),
    "a job hangs": (
        {'unhang_verdict{job_id="j",status="problem",action="restart",culprit_host="n1"}': "1x40",
         'unhang_job_running{job_id="j"}': "1x40"},
        {"RunningJobHung"},
    ),
    "a job may only pause": (
        {'unhang_verdict{job_id="j",status="problem",action="none"}': "_x20 1x20",
         'unhang_job_running{job_id="j"}': "1x40"},
        set(),
    ),
    "a pause lasts": (
        {'unhang_verdict{job_id="j",status="problem",action="none"}': "1x40",
         'unhang_job_running{job_id="j"}': "1x40"},
        {"RunningJobPauses"},
    ),
    "a job that hung has been ended": (
        {'unhang_verdict{job_id="j",status="problem",action="restart"}': "1x40",
         'unhang_job_running{job_id="j"}': "1x10 0x30",
         'unhang_rank_alive{job_id="j",rank="0"}': "1x10 0x30"},
        set(),
    ),
    "a rank dies": (
        {'unhang_job_running{job_id="j"}': "1x40",
         'unhang_rank_alive{job_id="j",rank="0"}': "1x10 0x30",
         'unhang_rank_alive{job_id="j",rank="1"}': "1x40"},
        {"RankDied"},
    ),
    "a rank dies, seen by unhang serve": (
        {'unhang_rank_alive{job_id="j",rank="0"}': "1x10 0x30"}, {"RankDied"}
    ),
    "all is well": (
        {'unhang_job_running{job_id="j"}': "1x40", 'unhang_rank_alive{job_id="j",rank="0"}': "1x40",
         'unhang_cases{status="problem",instance="a"}': "1x40", "unhang_cases_unreadable": "0x40"},
        set(),
    ),
}  # fmt: skip


def promtool(*words: object, text: str = "") -> str:
    """Run it; what it says, which must be no complaint."""
    done = subprocess.run(
        ["promtool", *map(str, words)], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def all_metrics() -> str:
    """Every family that we write."""
    rank = RankNow(0, 11, True, "ready", 41, 2.5, 0, True, "all_reduce", 1.5, 7)  # noqa: FBT003
    group = GroupNow("1", "tp", "nccl", (0, 1), 30, 1.5, (1,))
    job = JobNow("j", "node01", 2, (rank,), (group,))
    verdict = Verdict("", "problem", action="restart")
    own = _verdict_metrics("j", verdict, running=True)
    return metrics([facts_of_report(Path(), never_joined())], 0, [job]) + "".join(
        f"{line}\n" for line in own
    )


def expressions() -> list[str]:
    """Those of the dashboard."""
    dashboard = json.loads((GRAFANA / "dashboard.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def test_our_metrics_have_nothing_to_lint() -> None:
    """Names, help and types as Prometheus wants them."""
    assert promtool("check", "metrics", text=all_metrics()) == ""


def test_rules_and_panels_are_expressions(tmp_path: Path) -> None:
    """Each parses, and names only metrics that we write."""
    assert "SUCCESS: 6 rules" in promtool("check", "rules", GRAFANA / "alerts.yaml")
    panels = [{"record": f"panel:{n}", "expr": expr} for n, expr in enumerate(expressions())]
    (tmp_path / "panels.yaml").write_text(
        json.dumps({"groups": [{"name": "panels", "rules": panels}]})
    )
    assert "SUCCESS" in promtool("check", "rules", tmp_path / "panels.yaml")
    written = set(re.findall(r"^# TYPE (\w+)", all_metrics(), re.MULTILINE))
    named = set(re.findall(r"unhang_\w+", (GRAFANA / "alerts.yaml").read_text()))
    named |= {name for expr in expressions() for name in re.findall(r"unhang_\w+", expr)}
    assert named <= written


def test_the_dashboard_asks_by_its_own_variables() -> None:
    """Each that a panel names is defined, is used, and takes its values from a metric of ours."""
    dashboard = json.loads((GRAFANA / "dashboard.json").read_text())
    defined = {each["name"]: each for each in dashboard["templating"]["list"]}
    used = {name for expr in expressions() for name in re.findall(r"\$(\w+)", expr)}
    sources = {panel["datasource"]["uid"] for panel in dashboard["panels"]}
    assert used | {"datasource"} == defined.keys()
    assert sources == {"${datasource}"}
    written = set(re.findall(r"^# TYPE (\w+)", all_metrics(), re.MULTILINE))
    for name in used:
        ((metric, label),) = re.findall(
            r"label_values\((\w+), (\w+)\)", defined[name]["query"]["query"]
        )
        assert metric in written
        assert all(f'{label}=~"${name}"' in expr for expr in expressions() if f"${name}" in expr)


@pytest.mark.parametrize("name", STORIES)
def test_alerts_fire_when_they_should(tmp_path: Path, name: str) -> None:
    """Half an hour of each story, a sample a minute: what fires then, and nothing else."""
    series, fires = STORIES[name]
    rules = re.findall(r"- alert: (\w+)", (GRAFANA / "alerts.yaml").read_text())
    expected = [
        {"eval_time": "30m", "alertname": rule, "exp_alerts": []}
        for rule in rules if rule not in fires
    ]  # fmt: skip
    (tmp_path / "story.yaml").write_text(json.dumps(story(series, expected)))
    promtool("test", "rules", tmp_path / "story.yaml")
    for rule in fires:
        silent = [{"eval_time": "30m", "alertname": rule, "exp_alerts": []}]
        (tmp_path / "story.yaml").write_text(json.dumps(story(series, silent)))
        words = ["promtool", "test", "rules", str(tmp_path / "story.yaml")]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert f"alertname: {rule}" in done.stdout + done.stderr


def story(series: dict[str, str], expected: list[dict[str, Any]]) -> dict[str, Any]:
    """A test of rules as promtool reads it."""
    given = [{"series": name, "values": values} for name, values in series.items()]
    return {
        "rule_files": [str(GRAFANA / "alerts.yaml")],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": given, "alert_rule_test": expected}],
    }


@pytest.mark.debian("prometheus")
def test_prometheus_scrapes_as_the_page_says(tmp_path: Path) -> None:
    """The configuration in docs/serve.md, on a server that takes its token from a file."""
    shutil.copytree(ROOT / "examples" / "never-joined-armed", tmp_path / "cases" / "one")
    token = tmp_path / "token"
    token.write_text("t" * 40)
    token.chmod(0o600)
    command = [sys.executable, "-m", "unhang", "serve", str(tmp_path / "cases"), "--port", "0"]
    serving = subprocess.Popen(
        [*command, "--token-file", str(token)], stdout=subprocess.PIPE, text=True
    )
    assert serving.stdout is not None
    place = urlsplit(serving.stdout.readline().strip()).netloc
    (told,) = re.findall(r"```yaml\n(scrape_configs:.*?)```", SERVE.read_text(), re.DOTALL)
    told = told.replace("/etc/prometheus/unhang-token", str(token))
    told = told.replace("127.0.0.1:8770", place)
    (tmp_path / "prometheus.yml").write_text(f"global: {{scrape_interval: 1s}}\n{told}")
    promtool("check", "config", tmp_path / "prometheus.yml")
    port = free_port()
    asking = [f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/db"]
    scraping = subprocess.Popen(
        ["prometheus", *asking, f"--web.listen-address=127.0.0.1:{port}"],
        stderr=subprocess.DEVNULL,
    )
    try:
        answer = asked(port, 'unhang_cases{status="problem"}')
    finally:
        for process in (scraping, serving):
            process.terminate()
            process.wait(60)
        serving.stdout.close()
    (sample,) = answer
    assert sample["metric"]["job"] == "unhang"
    assert sample["value"][1] == "1"


def asked(port: int, query: str) -> list[dict[str, Any]]:
    """What Prometheus answers, as soon as it has anything to say."""
    url = f"http://127.0.0.1:{port}/api/v1/query?query={quote(query)}"
    while True:
        with suppress(OSError), urlopen(url, timeout=60) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            if found:
                return found
        time.sleep(0.1)


@pytest.mark.debian("prometheus-alertmanager")
def test_alertmanager_has_one_alert_over_the_life_of_a_hang(tmp_path: Path) -> None:
    """A first look that is unsure, a second that is sure, and the end: one is active, then none."""
    (tmp_path / "am.yml").write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
    port = free_port()
    options = [
        f"--config.file={tmp_path}/am.yml", f"--storage.path={tmp_path}/am",
        f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}/api/v2/alerts"
    process = subprocess.Popen(["prometheus-alertmanager", *options], stderr=subprocess.DEVNULL)
    try:
        alerts_at(port)
        notifier = Notifier([url], "train7", tmp_path / "log", print)
        active = []
        for event, case, confidence in (
            ("verdict", "one", "low"), ("verdict", "two", "high"), ("moves-on", "two", "medium"),
        ):  # fmt: skip
            found = replace(never_joined().findings[0], confidence=confidence)
            (tmp_path / case).mkdir(exist_ok=True)
            text = render("json", replace(never_joined(), findings=(found,)))
            (tmp_path / case / "report.json").write_text(text)
            notifier.tell(event, tmp_path / case, "it stood still")
            assert notifier._under_way[-1].wait() == 0
            time.sleep(1.1)  # times of alerts are whole seconds
            active.append([a["labels"]["confidence"] for a in alerts_at(port)])
        assert active == [["low"], ["high"], []]
    finally:
        process.terminate()
        process.wait(60)


def alerts_at(port: int) -> list[dict[str, Any]]:
    """The alerts that are active, as soon as the server answers."""
    url = f"http://127.0.0.1:{port}/api/v2/alerts?active=true"
    while True:
        with suppress(OSError), urlopen(url, timeout=60) as answer:
            found: list[dict[str, Any]] = json.load(answer)
            return found
        time.sleep(0.1)
