"""The server in a real browser: its address lets one in, pages draw, forms work."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.debian("chromium")


@contextmanager
def served(cases: Path) -> Iterator[str]:
    """A server over a folder of cases; gives the address that it prints."""
    command = [sys.executable, "-m", "unhang", "serve", str(cases), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        yield browser
        browser.close()


def two_cases(folder: Path) -> Path:
    """A hang and another one."""
    shutil.copytree(ROOT / "examples" / "never-joined-armed", folder / "one")
    shutil.copytree(ROOT / "examples" / "crossed-order", folder / "two")
    return folder


def test_somebody_looks_at_a_case_and_asks(tmp_path: Path) -> None:
    """From the printed address to a case, its page, an answer in SQL; no complaint, no stranger."""
    complaints: list[str] = []
    asked: set[str] = set()
    with served(two_cases(tmp_path)) as address, chromium() as browser:
        page = browser.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.add(request.url.split("/case", 1)[0]))
        page.goto(address)
        assert "token" not in page.url
        page.click("text=Rank 2 never called")
        page.wait_for_selector("body[data-drawn]")
        assert page.locator("#map [role=option]").count() == 4
        page.go_back()
        page.locator("a", has_text="SQL").first.click()
        page.fill("textarea", "SELECT count(*) AS n_calls FROM calls")
        page.click("button")
        assert page.locator("th", has_text="n_calls").count() == 1
        page.goto(page.url.split("/case", 1)[0])
        page.click("text=compare a with b")
        assert "/compare" not in page.url  # the browser asks for both first
        for name in ("a", "b"):
            page.locator(f"input[name={name}]").nth(int(name == "b")).check()
        page.click("text=compare a with b")
        assert "Blamed in both" in page.inner_text("main")
        assert page.locator("main a[href^='/case/']").count() == 2
    own = address.split("/enter", 1)[0]
    assert [text for text in complaints if "favicon" not in text] == []
    assert all(url.startswith(own) for url in asked)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_of_the_server_leave_nobody_out(tmp_path: Path, scheme: Any) -> None:  # noqa: ANN401 - a literal of playwright's
    """What axe finds serious, on a desk; nothing is wider than a phone's window."""
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text()
    with served(two_cases(tmp_path)) as address, chromium() as browser:
        context = browser.new_context(color_scheme=scheme, bypass_csp=True)
        page = context.new_page()
        page.goto(address)
        own = address.split("/enter", 1)[0]
        keys = [link.get_attribute("href") for link in page.locator("a", has_text="SQL").all()]
        one, two = (str(key).split("/")[2] for key in keys)
        places = ["/", "/history", "/live", f"/compare?a={one}&b={two}", f"/case/{one}/sql", "/x/"]
        for place in [*places, "/compare", "/case/none/"]:
            page.set_viewport_size({"width": 1280, "height": 800})
            page.goto(own + place)
            page.evaluate(f"{axe};undefined")
            found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            serious = [v for v in found["violations"] if v["impact"] in ("serious", "critical")]
            assert [(place, v["id"], v["nodes"][0]["html"]) for v in serious] == []
            page.set_viewport_size({"width": 390, "height": 844})
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, place
