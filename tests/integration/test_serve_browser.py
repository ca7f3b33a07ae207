"""The server in a real browser: its address lets one in, pages draw, forms work."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.debian("chromium")


def test_somebody_looks_at_a_case_and_asks(tmp_path: Path) -> None:
    """From the printed address to a case, its page, an answer in SQL; no complaint, no stranger."""
    from playwright.sync_api import sync_playwright

    shutil.copytree(ROOT / "examples" / "never-joined-armed", tmp_path / "one")
    shutil.copytree(ROOT / "examples" / "crossed-order", tmp_path / "two")
    command = [sys.executable, "-m", "unhang", "serve", str(tmp_path), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    complaints: list[str] = []
    asked: set[str] = set()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
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
            for name in ("a", "b"):
                page.locator(f"input[name={name}]").nth(int(name == "b")).check()
            page.click("text=compare a with b")
            assert "Blamed in both" in page.inner_text("main")
            browser.close()
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()
    own = address.split("/enter", 1)[0]
    assert [text for text in complaints if "favicon" not in text] == []
    assert all(url.startswith(own) for url in asked)
