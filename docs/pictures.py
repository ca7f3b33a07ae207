"""Make the pictures of pages in docs/images: python docs/pictures.py; needs playwright, Chromium.

The jobs are simulated with fixed seeds, so a picture changes only when the page does.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))  # for `lab`, which is not installed

from lab.simulate.corpus import CaseSpec
from lab.simulate.writing import simulate
from unhang.analysis import diagnose
from unhang.analysis.picture import picture_of
from unhang.ingest import load
from unhang.reports import render

JOBS = {
    "page": CaseSpec("page", "never-joined", "megatron", 64, "hosts", 0),
    "circle": CaseSpec("circle", "crossed-groups", "hsdp", 16, "plain", 0),
    "slow": CaseSpec("slow", "late-rank", "ddp", 8, "plain", 0),
    "pipeline": CaseSpec("pipeline", "pipeline-stall", "megatron", 1024, "plain", 0),
}
SIZE = {"width": 1020, "height": 600}


def main() -> None:
    """Draw each job's page in a browser without a window, and keep its first screen."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-lcd-text"]
        )
        for name, spec in JOBS.items():
            place = Path(folder) / name
            simulate(spec, place)
            case = load([place])
            report = diagnose(case)
            path = place / "page.html"
            path.write_text(render("html", report, case, None, picture_of(case, report)))
            page = browser.new_page(viewport=SIZE)
            page.goto(path.as_uri())
            page.wait_for_selector("body[data-drawn]")
            page.screenshot(path=DOCS / "images" / f"{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
