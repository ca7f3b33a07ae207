"""Make the pictures of pages: python docs/pictures.py [--all FOLDER]; needs playwright, Chromium.

Without --all, those in docs/images. With it, every kind of page at three widths, dark, printed, and
the live page of a job that hangs, before and after: to be looked at after each change of the page.
The jobs are simulated with fixed seeds, so a picture changes only when the page does.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))  # for `lab`, which is not installed

from lab.simulate.corpus import CaseSpec
from lab.simulate.writing import simulate
from unhang.analysis import diagnose
from unhang.analysis.picture import picture_of
from unhang.casedir.place import place_in
from unhang.cli.main import main as unhang
from unhang.ingest import load
from unhang.reports import render, with_steps

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

JOBS = {
    "page": CaseSpec("page", "never-joined", "megatron", 64, "hosts", 0),
    "circle": CaseSpec("circle", "crossed-groups", "hsdp", 16, "plain", 0),
    "slow": CaseSpec("slow", "late-rank", "ddp", 8, "plain", 0),
    "pipeline": CaseSpec("pipeline", "pipeline-stall", "megatron", 1024, "plain", 0),
}
MORE = {
    "small": CaseSpec("small", "never-joined", "ddp", 8, "plain", 0),
    "healthy": CaseSpec("healthy", "healthy", "cp", 8, "plain", 0),
}
FEW = 2
"""Dumps that are left of the healthy job: too few for a verdict."""
LOG = "[rank1]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
SIZE = {"width": 1020, "height": 600}
WAYS: dict[str, dict[str, Any]] = {
    "wide": {"viewport": {"width": 1280, "height": 800}},
    "middle": {"viewport": {"width": 768, "height": 1024}},
    "phone": {"viewport": {"width": 390, "height": 844}},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "print": {"viewport": {"width": 794, "height": 1123}},
}
_HANGS_S = "6"


def main() -> None:
    """Draw each job's page in a browser without a window, and keep its first screen."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--all", metavar="FOLDER", type=Path, help="all pages in all ways, here")
    everywhere = parser.parse_args().all
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-lcd-text"]
        )
        if everywhere:
            everywhere.mkdir(parents=True, exist_ok=True)
            for name, path in pages(Path(folder), {**JOBS, **MORE}):
                in_all_ways(browser, path, everywhere / name)
            live(browser, Path(folder), everywhere)
        else:
            for name, path in pages(Path(folder), JOBS):
                with_page(browser, path.as_uri(), viewport=SIZE).screenshot(
                    path=DOCS / "images" / f"{name}.png"
                )
        browser.close()


def pages(folder: Path, jobs: dict[str, CaseSpec]) -> Iterator[tuple[str, Path]]:
    """The page of each job; of all kinds of reports where a healthy job is among them."""
    for name, spec in jobs.items():
        simulate(spec, folder / name)
        yield name, page_of(folder / name)
    if "healthy" in jobs:
        dumps = sorted((folder / "healthy" / "dumps").iterdir())
        for dump in dumps[FEW:]:
            dump.unlink()
        yield "insufficient", page_of(folder / "healthy")
        (folder / "rank_1.log").write_text(LOG)
        unhang(["logs", str(folder / "rank_1.log"), "-o", str(folder / "logs.html")])
        yield "logs", folder / "logs.html"


def page_of(place: Path) -> Path:
    """The page of what lies in a directory."""
    case = load([place])
    # As the commands of its user would name it: the folder here has another name every time.
    named = replace(place_in(place), case=(f"unhang-cases/{place.name}",))
    report = with_steps(diagnose(case), case, named)
    path = place.with_suffix(".html")
    path.write_text(render("html", report, case, None, picture_of(case, report)))
    return path


def with_page(browser: Browser, address: str, **how: Any) -> Page:  # noqa: ANN401 - playwright's
    """A page that has drawn."""
    page = browser.new_page(**how)
    page.goto(address)
    page.wait_for_selector("body[data-drawn]")
    return page


def in_all_ways(browser: Browser, path: Path, target: Path) -> None:
    """Pictures of a whole page: three widths, dark, printed."""
    for way, how in WAYS.items():
        page = with_page(browser, path.as_uri(), **how)
        page.emulate_media(media="print" if way == "print" else "screen")
        page.screenshot(path=f"{target}-{way}.png", full_page=True)
        page.close()


def live(browser: Browser, folder: Path, target: Path) -> None:
    """The live page of the job of `unhang demo`, before its verdict and after it."""
    command = [sys.executable, "-m", "unhang", "run", "--serve", "--hang-after", _HANGS_S, "--"]
    program = DOCS.parent / "src" / "unhang" / "demo" / "train.py"
    job = [sys.executable, str(program), "4", str(folder / "meeting")]
    environ = {**os.environ, "UNHANG_RUNTIME_DIR": str(folder / "ranks")}  # no other job is seen
    with (folder / "said").open("w+") as said:
        process = subprocess.Popen(  # noqa: S603 - our own
            [*command, *job], cwd=folder, stderr=said, env=environ, start_new_session=True
        )
        try:
            page = browser.new_page(viewport=WAYS["wide"]["viewport"])
            page.goto(address_in(folder / "said", process))
            page.wait_for_selector("#jobs tr:nth-child(4)", timeout=120_000)
            page.screenshot(path=target / "live-before.png", full_page=True)
            page.wait_for_selector("#verdicts a", timeout=240_000)
            page.screenshot(path=target / "live-after.png", full_page=True)
        finally:
            process.terminate()  # it ends its server
            process.wait(120)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the ranks that hang


def address_in(said: Path, process: subprocess.Popen[bytes]) -> str:
    """The address that `unhang run --serve` prints, once it has."""
    while process.poll() is None:
        if found := re.search(r"http://\S+", said.read_text()):
            return found[0]
    raise SystemExit(said.read_text())


if __name__ == "__main__":
    main()
