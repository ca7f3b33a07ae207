"""The HTML report in a real browser: it draws, it asks nobody for anything, nothing in it runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from case_samples import stuck_case
from report_samples import hostile, never_joined

from unhang.reports import render

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.debian("chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        yield browser
        browser.close()


def test_the_page_draws_and_asks_nobody(browser: Browser, tmp_path: Path) -> None:
    """Verdict and timeline are visible, and the only thing requested is the file itself."""
    (tmp_path / "report.html").write_text(render("html", never_joined(), stuck_case()))
    page = browser.new_page()
    requested: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto((tmp_path / "report.html").as_uri())
    page.wait_for_selector("#timeline .bars")
    assert page.locator("h1").inner_text() == never_joined().summary
    assert "data.py:31" in page.locator("dd.culprit").inner_text()
    assert complaints == []
    assert [url for url in requested if not url.startswith(("file:", "data:", "blob:"))] == []


def test_the_page_offers_no_way_out(browser: Browser, tmp_path: Path) -> None:
    """No button uploads the chart, no link leaves the page, and a script that tries may not."""
    (tmp_path / "report.html").write_text(render("html", never_joined(), stuck_case()))
    page = browser.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.goto((tmp_path / "report.html").as_uri())
    page.wait_for_selector("#timeline .bars")
    page.hover("#timeline")
    assert page.locator(".modebar-btn, .plotlyjsicon").count() == 0
    assert page.locator("a[href^='http']").count() == 0
    reached = page.evaluate("fetch('http://127.0.0.1:9/').then(() => true, () => false)")
    assert reached is False
    assert any("Content Security Policy" in text for text in complaints)


@pytest.mark.parametrize("width", [380, 1200])
def test_nothing_from_a_dump_runs_or_spills(browser: Browser, tmp_path: Path, width: int) -> None:
    """Scripts in names are text, and no page is wider than its window, not even a phone's."""
    (tmp_path / "report.html").write_text(render("html", hostile()))
    page = browser.new_page(viewport={"width": width, "height": 800})
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.goto((tmp_path / "report.html").as_uri())
    assert dialogs == []
    assert page.locator("img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
