"""A real job under `unhang run --serve`, seen in a browser: progress, a death, the verdict."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ports import free_port
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from run_jobs import PROGRAM, environment

from unhang.record.contact.marks import read_marks

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.debian("chromium")


def samples(path: Path) -> dict[str, list[Sample]]:
    """What a file of metrics holds, as Prometheus' own parser reads it."""
    return {f.name: f.samples for f in text_string_to_metric_families(path.read_text())}


def address_in(said: Path, process: subprocess.Popen[bytes]) -> str:
    """The address that is printed, once it is."""
    while process.poll() is None:
        if found := re.search(r"http://\S+", said.read_text()):
            return found[0]
    raise AssertionError(said.read_text())


def told_of(path: Path) -> dict[str, list[Sample]]:
    """The file once it tells of a verdict and of a rank that has ended; before that, nothing."""
    found = samples(path)
    ended = [each for each in found.get("unhang_rank_alive", []) if each.value == 0.0]
    return found if found["unhang_verdict"] and ended else {}


def reloaded(page: Page, folder: Path) -> str:
    """The verdict of the only report, on a page that is opened when the alarm has come."""
    page.reload()
    page.wait_for_selector("#verdicts a", timeout=60_000)
    (report,) = (folder / "unhang-cases").glob("*/report.json")
    return str(json.loads(report.read_text())["summary"])


Facts = tuple[set[tuple[str, str]], str]
"""Rank and calls finished of each rank, and the newest verdict."""


def face(page: Page) -> tuple[str, str | None]:
    """What its tab shows: title and icon."""
    return page.title(), page.get_attribute("#icon", "href")


def see_that_its_tab_changed(page: Page, before: tuple[str, str | None]) -> None:
    """From the job's name to the verdict."""
    assert before[0] == "▶ seen: live, unhang"
    assert face(page)[0].startswith("! problem: ")
    assert face(page)[1] != before[1]


def what_is_shown(page: Page) -> Facts:
    """The facts on the live page."""
    rows = [row.locator("td").all_inner_texts() for row in page.locator("#jobs tr").all()]
    ranks = {(row[0], row[3]) for row in rows if len(row) > 6}
    return ranks, page.locator("#verdicts a").first.inner_text()


def what_top_says(folder: Path, environ: dict[str, str]) -> Facts:
    """The same facts in a terminal."""
    command = [sys.executable, "-m", "unhang", "top", "--once", "--job", "seen", "--width", "300"]
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    rows = re.findall(r"^ +(\d+) (?:in a call|away|ended|) +([\d,]+)", done.stdout, re.MULTILINE)
    (verdict,) = re.findall(r"^PROBLEM  (.*?) *$", done.stdout, re.MULTILINE)
    return set(rows), verdict


def what_top_says_too(page: Page, folder: Path, environ: dict[str, str]) -> str:
    """The verdict on the page, once `unhang top` has said the same of it and of the ranks."""
    shown = what_is_shown(page)
    assert what_top_says(folder, environ) == shown
    return shown[1]


def test_a_browser_sees_the_job_and_its_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a reload: ranks that finish calls, rank 0 that is killed, the verdict."""
    from playwright.sync_api import sync_playwright

    environ = environment(tmp_path)
    monkeypatch.setenv("UNHANG_RUNTIME_DIR", environ["UNHANG_RUNTIME_DIR"])
    job = [sys.executable, str(PROGRAM), "skip", "3", str(free_port())]
    command = [sys.executable, "-m", "unhang", "run", "--serve", "--hang-after", "6"]
    command += ["--metrics", "job.prom"]
    with (tmp_path / "said").open("w+") as said:
        process = subprocess.Popen(
            [*command, "--job", "seen", "--", *job], cwd=tmp_path, env=environ, stderr=said
        )
        ranks: list[int] = []
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=shutil.which("chromium"), args=["--no-sandbox"]
                )
                page = browser.new_page()
                complaints: list[str] = []
                page.on("pageerror", lambda error: complaints.append(str(error)))
                page.goto(address_in(tmp_path / "said", process))
                page.wait_for_selector("#jobs tr:nth-child(4)", timeout=60_000)
                page.wait_for_selector("#jobs td:text('default_pg (0)')", timeout=60_000)
                before = face(page)
                page.click("#stacks")
                page.wait_for_selector(f"#stacks-said:has-text('{PROGRAM.name}')", timeout=120_000)
                page.click("#dump")
                page.wait_for_selector("#said:has-text('dumps of ranks')", timeout=120_000)
                assert list((tmp_path / "unhang-cases").glob("*/dumps/*/*"))
                marks = read_marks("seen")
                ranks += [mark.pid for mark in marks]
                os.kill(next(m.pid for m in marks if m.rank == 0), signal.SIGKILL)
                page.wait_for_selector("#jobs td.failed", timeout=60_000)
                page.wait_for_selector("#verdicts a", timeout=120_000)
                assert "PROBLEM" in page.inner_text("#verdicts")
                assert not page.is_visible("#promise")
                see_that_its_tab_changed(page, before)
                assert reloaded(page, tmp_path) in what_top_says_too(page, tmp_path, environ)
                while not (measured := told_of(tmp_path / "job.prom")):
                    page.wait_for_timeout(200)
                assert complaints == []
                browser.close()
        finally:
            process.terminate()
            process.wait(120)
            for pid in ranks:  # They outlive rank 0, which had started them.
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    (verdict,) = measured["unhang_verdict"]
    assert (verdict.labels["job_id"], verdict.labels["status"]) == ("seen", "problem")
    alive = {each.labels["rank"]: each.value for each in measured["unhang_rank_alive"]}
    assert alive["0"] == 0.0
    assert [each.value for each in samples(tmp_path / "job.prom")["unhang_job_running"]] == [0.0]
    assert [path.name for path in tmp_path.glob("*job.prom*")] == ["job.prom"]
