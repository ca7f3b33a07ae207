"""The HTML report in a real browser: it draws, it asks nobody for anything, nothing in it runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from patience import PATIENCE_S
from report_samples import SAMPLES, hostile

from lab.simulate.corpus import CaseSpec
from lab.simulate.writing import simulate
from unhang.analysis import diagnose
from unhang.analysis.picture import picture_of
from unhang.catalogue import DOCS
from unhang.ingest import load
from unhang.report import Report
from unhang.reports import render
from unhang.wording import printable

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.debian("chromium")

JOBS = {
    "small": CaseSpec("small", "never-joined", "ddp", 8, "plain", 0),
    "circle": CaseSpec("circle", "crossed-groups", "hsdp", 16, "plain", 0),
    "middle": CaseSpec("middle", "never-joined", "megatron", 64, "plain", 0),
    "wide": CaseSpec("wide", "pipeline-stall", "megatron", 1024, "plain", 0),
    "slow": CaseSpec("slow", "late-rank", "ddp", 8, "plain", 0),
    "healthy": CaseSpec("healthy", "healthy", "cp", 8, "plain", 0),
}
LIMITS = {"middle": 250_000, "wide": 450_000}
OWN = 120_000
HELD = "window.held = []; window.requestAnimationFrame = (draw) => held.push(draw)"
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


class Written(NamedTuple):
    """A page with what it was made from."""

    path: Path
    report: Report


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


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    """A page of each job."""
    folder = tmp_path_factory.mktemp("pages")
    made = {}
    for name, spec in JOBS.items():
        simulate(spec, folder / name)
        case = load([folder / name])
        report = diagnose(case)
        path = folder / f"{name}.html"
        path.write_text(render("html", report, case, None, picture_of(case, report)))
        made[name] = Written(path, report)
    return made


def opened(browser: Browser, path: Path, complaints: list[str], **how: Any) -> Page:  # noqa: ANN401
    """Open a page and wait until it has drawn; whatever it complains about is kept."""
    page = browser.new_page(**how)
    page.set_default_timeout(PATIENCE_S * 1000)
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda asked: complaints.append(asked.url) if asked.url != url else None)
    page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
    url = path.as_uri()
    page.goto(url)
    page.wait_for_selector("body[data-drawn]")
    return page


@pytest.mark.parametrize("name", JOBS)
def test_verdict_and_culprit_are_seen_at_once(
    browser: Browser, pages: dict[str, Written], name: str
) -> None:
    """Without scrolling, without a complaint, without any request but for the file itself."""
    complaints: list[str] = []
    page = opened(browser, pages[name].path, complaints, viewport=WIDE)
    report = pages[name].report
    assert page.locator("h1").inner_text() == printable(report.summary)
    seen = [page.locator("h1"), *page.locator("dd.culprit").all()[:1]]
    for each in seen:
        box = each.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= WIDE["height"]
    assert bool(page.locator("header dd.culprit").count()) == bool(report.findings[0].culprits)
    assert complaints == []
    assert pages[name].path.stat().st_size <= LIMITS.get(name, OWN)


@pytest.mark.parametrize("name", ["small", "circle", "middle", "wide", "slow"])
def test_ranks_and_who_waits_stand_side_by_side(
    browser: Browser, pages: dict[str, Written], name: str
) -> None:
    """Both begin on the first screen, the graph ends on it, and no box covers another one."""
    page = opened(browser, pages[name].path, [], viewport=WIDE)
    beside = page.locator("#heat" if name == "slow" else "#waits").bounding_box()
    ranks = page.locator("#map").bounding_box()
    assert beside is not None
    assert ranks is not None
    assert beside["x"] > ranks["x"] + ranks["width"]
    assert max(beside["y"], ranks["y"]) < WIDE["height"] - 200
    boxes = [each.bounding_box() for each in page.locator("#waits svg rect").all()]
    for at, one in enumerate(boxes):
        for other in boxes[at + 1 :]:
            assert one is not None
            assert other is not None
            assert any(
                one[axis] + one[size] <= other[axis] or other[axis] + other[size] <= one[axis]
                for axis, size in (("x", "width"), ("y", "height"))
            )


def test_the_rest_of_the_graph_is_one_click_away(
    browser: Browser, pages: dict[str, Written]
) -> None:
    """The culprit and who waits for it come first; what is left out is counted."""
    page = opened(browser, pages["wide"].path, [], viewport=WIDE)
    near = page.locator("#waits [data-node]").count()
    left = int(page.locator("#waits-left").inner_text().split()[0])
    assert page.locator("#waits [data-node]", has_text="culprit").count() == 1
    page.click("#all-waits")
    assert page.locator("#waits [data-node]").count() == near + left
    assert page.locator("#waits-left").inner_text() == ""


def test_a_rank_can_be_searched_and_linked(browser: Browser, pages: dict[str, Written]) -> None:
    """By number or range in the field, and by the address; what is not there is said."""
    page = opened(browser, pages["middle"].path, [], viewport=WIDE)
    page.fill("#find", "40-42, 47")
    assert page.locator("#map [aria-selected=true]").count() == 4
    assert "rank 40" in page.locator("#about").inner_text()
    for odd in ("4711", "0-99999999999", "x"):
        page.fill("#find", odd)
        assert page.locator("#map [aria-selected=true]").count() == 0
        assert page.locator("#about").inner_text() == "There is no such rank here."
    page.evaluate("location.hash = '#rank=47'")
    page.wait_for_selector("#map [aria-selected=true][data-rank='47']")


def test_the_way_to_the_standstill_is_replayed(browser: Browser, pages: dict[str, Written]) -> None:
    """By the keyboard alone, and back to the verdict's own map; paper has that map too."""
    page = opened(browser, pages["middle"].path, [], viewport=WIDE)
    (culprit,) = pages["middle"].report.findings[0].culprits
    waiting = page.locator("#map .s-waiting")
    before = waiting.count()
    page.focus("#moment")
    page.keyboard.press("Home")
    assert waiting.count() < before
    assert page.locator("#map .then").get_attribute("data-rank") == str(culprit)
    assert "before the last event" in str(page.get_attribute("#moment", "aria-valuetext"))
    page.keyboard.press("End")
    assert waiting.count() == before
    assert page.locator("#map .s-culprit").get_attribute("data-rank") == str(culprit)
    page.keyboard.press("Home")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert waiting.count() == before


def test_paper_is_wide_enough(browser: Browser, pages: dict[str, Written]) -> None:
    """Columns that it has no room for are counted below the table."""
    page = opened(browser, pages["circle"].path, [], viewport={"width": 800, "height": 1100})
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 800
    shown = sum(each.is_visible() for each in page.locator("#calls thead button").all())
    left = page.locator("#calls caption").inner_text()
    assert (
        left
        == f"{page.locator('#calls thead button').count() - shown} more columns are on the page."
    )


def test_groups_are_named_by_what_they_are(browser: Browser, pages: dict[str, Written]) -> None:
    """Where no host is known, ranks lie as the verdict's groups do; Tab comes to the culprit."""
    page = opened(browser, pages["middle"].path, [], viewport=WIDE)
    (culprit,) = pages["middle"].report.findings[0].culprits
    assert page.locator("#axis option:checked").inner_text().startswith("tensor-parallel groups")
    assert page.locator("#map [tabindex='0']").get_attribute("data-rank") == str(culprit)
    assert page.locator("#waits text", has_text="tensor-parallel, ranks 40-47").count() == 1


@pytest.mark.parametrize("name", ["two-faults", "wrong-dtype", "never-joined"])
def test_every_cause_and_every_doubt_is_seen(browser: Browser, tmp_path: Path, name: str) -> None:
    """What the page shows, against the report in it: nothing hides, and low confidence has why."""
    case = load([Path("examples") / name])
    (tmp_path / "page.html").write_text(render("html", diagnose(case), case))
    page = opened(browser, tmp_path / "page.html", [], viewport=WIDE)
    held = json.loads(page.locator("#facts").text_content() or "")["report"]
    first, *others = [each for each in held["findings"] if each["role"] == "cause"]
    shown = page.locator("header dd.confidence").inner_text()
    why = "; ".join(first["confidence_reasons"])
    assert shown == (f"{first['confidence']}: {why}" if why else first["confidence"])
    also = page.locator("header dd.also")
    assert also.count() == bool(others)
    for each in others:
        assert each["summary"] in also.inner_text()
    for each in (first, *others):
        told = page.locator(f"section#{each['id']}").inner_text()
        assert all(reason in told for reason in each["confidence_reasons"])


def test_the_page_of_its_own_is_small() -> None:
    """What every page carries, whatever it shows."""
    assert len(render("html", SAMPLES["empty"]()).encode()) <= OWN


@pytest.mark.parametrize("name", SAMPLES)
def test_every_report_has_a_page_that_works(browser: Browser, tmp_path: Path, name: str) -> None:
    """Without ranks, without calls, with 8,192 ranks: no complaint, and the JSON opens."""
    (tmp_path / "report.html").write_text(render("html", SAMPLES[name]()))
    complaints: list[str] = []
    page = opened(browser, tmp_path / "report.html", complaints, viewport=WIDE)
    page.locator("#raw summary").click()
    page.locator("#json", has_text='"status"').wait_for()
    assert complaints == []


def test_the_verdict_and_the_ranks_are_drawn_first(
    browser: Browser, pages: dict[str, Written]
) -> None:
    """Everything else waits until these have been painted, or somebody prints."""
    for go_on in ("held.forEach((draw) => draw())", "dispatchEvent(new Event('beforeprint'))"):
        page = browser.new_page()
        page.add_init_script(HELD)
        page.goto(pages["wide"].path.as_uri())
        while not page.evaluate("performance.getEntriesByName('first view').length"):
            page.wait_for_timeout(50)  # the page's own policy forbids what wait_for_function does
        assert page.locator("#map [role=option]").count() == 1024
        assert page.locator("#waits svg, #calls tr, #stacks button").count() == 0
        page.evaluate(go_on)
        page.wait_for_selector("body[data-drawn]")
        for part in ("#waits svg", "#calls tr", "#stacks button"):
            assert page.locator(part).count() > 0
        page.close()


def test_paper_has_everything_but_the_controls(browser: Browser, pages: dict[str, Written]) -> None:
    """Frames and heads of columns are what one can press, and are read on paper too."""
    page = opened(browser, pages["small"].path, [], viewport=WIDE)
    page.emulate_media(media="print", color_scheme="dark")
    for part in ("#stacks .frame", "#calls thead button", "#waits svg", "#map"):
        assert page.locator(part).first.is_visible()
    for part in ("button[data-copy]", "#axis", "#how", "#clear"):
        assert not page.locator(part).first.is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_long_words_are_cut_and_whole_at_hover(browser: Browser, tmp_path: Path) -> None:
    """The sentence stays a sentence, with the end of a path in sight."""
    path = "/".join(["a" * 30] * 9) + "/train.py:31"
    report = replace(SAMPLES["never-joined"](), summary=f"Rank 2 stands at {path} now.")
    (tmp_path / "report.html").write_text(render("html", report))
    page = opened(browser, tmp_path / "report.html", [], viewport=WIDE)
    said = page.locator("h1").inner_text()
    assert said.startswith("Rank 2 stands at aaa")
    assert said.endswith("…" + path[-25:] + " now.")
    assert page.locator("h1 span").get_attribute("title") == path
    assert printable(DOCS) in page.inner_text("dd.page")


def test_lateness_is_told_under_the_pointer(browser: Browser, pages: dict[str, Written]) -> None:
    """A rank, the number of a call, and how late it came; the axis of time names the clocks."""
    page = opened(browser, pages["slow"].path, [], viewport=WIDE)
    (culprit,) = pages["slow"].report.findings[0].culprits
    page.locator("#heat").scroll_into_view_if_needed()
    row = page.locator("#heat svg text", has_text=f"rank {culprit}").bounding_box()
    assert row is not None
    page.mouse.move(row["x"] + 92, row["y"] + row["height"] / 2)
    told = page.locator("#heat svg > title").text_content()
    assert told is not None
    assert told.startswith(f"rank {culprit}, #")
    assert float(told.split(": ")[1].split(" ms")[0]) > 100
    page.select_option("#how", "time")
    assert page.locator("#clocks").is_visible()


@pytest.mark.parametrize("name", JOBS)
def test_the_picture_says_what_the_report_says(
    browser: Browser, pages: dict[str, Written], name: str
) -> None:
    """Cells of the map, read back from the page, have the status of the report's table."""
    page = opened(browser, pages[name].path, [], viewport=WIDE)
    shown = page.evaluate(
        """Object.fromEntries([...document.querySelectorAll("#map [role=option]")].map(
        (cell) => [cell.dataset.rank, cell.className.split("s-")[1].split(" ")[0]]))"""
    )
    assert shown == {str(each.rank): each.status for each in pages[name].report.ranks}


@pytest.mark.parametrize(
    ("name", "scheme"),
    [*((name, "light") for name in JOBS), ("small", "dark"), ("circle", "dark"), ("slow", "dark")],
)
def test_nobody_is_left_out(
    browser: Browser, pages: dict[str, Written], name: str, scheme: str
) -> None:
    """What axe finds at all: contrast, names and sizes of controls, what cannot be read aloud."""
    page = opened(browser, pages[name].path, [], viewport=WIDE, color_scheme=scheme)
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text()
    page.evaluate(f"{axe};undefined")
    page.evaluate("axe.configure({rules: [{id: 'target-size', enabled: true}]})")
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert [(v["id"], v["nodes"][0]["html"]) for v in found["violations"]] == []


def test_the_first_key_leads_to_the_culprit(browser: Browser, pages: dict[str, Written]) -> None:
    """Tab and Enter; then the arrows move on from there."""
    for name in ("middle", "slow"):
        page = opened(browser, pages[name].path, [], viewport=WIDE)
        culprit = pages[name].report.findings[0].culprits[0]
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_selector(f"#map [data-rank='{culprit}']:focus")
        page.keyboard.press("ArrowLeft")
        page.wait_for_selector(f"#map [data-rank='{culprit - 1}']:focus")


def test_strides_are_said_in_words(browser: Browser, pages: dict[str, Written]) -> None:
    """Names of groups say "every 16th", as sentences do."""
    page = opened(browser, pages["middle"].path, [], viewport=WIDE)
    names = page.locator("#calls thead button").all_inner_texts()
    for axis in range(1, page.locator("#axis option").count()):
        page.select_option("#axis", index=axis)
        names += page.locator("#map .name").all_inner_texts()
    assert any("every 16th" in name for name in names)
    assert not any(":16" in name for name in names)


def test_a_click_shows_one_rank_alone(browser: Browser, pages: dict[str, Written]) -> None:
    """Whatever is of other ranks is dimmed, everywhere, until it is let go."""
    page = opened(browser, pages["small"].path, [], viewport=WIDE)
    (culprit,) = pages["small"].report.findings[0].culprits
    page.click(f"#map [data-rank='{culprit}']")
    chosen = page.locator("#map [aria-selected=true]")
    assert chosen.count() == 1
    assert page.locator("#map .off").count() == len(pages["small"].report.ranks) - 1
    assert page.locator("#waits .off").count() > 0
    assert page.locator("#calls .off").count() > 0
    page.click("#clear")
    assert page.locator(".off").count() == 0


def test_the_keyboard_reaches_everything(browser: Browser, pages: dict[str, Written]) -> None:
    """Arrows move through the ranks, Enter chooses, Escape lets go; nodes of the graph, too."""
    page = opened(browser, pages["small"].path, [], viewport=WIDE)
    page.focus("#map [data-rank='0']")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.locator("#map [aria-selected=true]").get_attribute("data-rank") == "1"
    page.keyboard.press("Escape")
    assert page.locator("#map [aria-selected=true]").count() == 0
    for part in ("#waits [data-node='0']", "#calls thead button", "#stacks .frame"):
        page.locator(part).first.focus()
        page.keyboard.press("Enter")
        assert page.locator(part).first.get_attribute("aria-pressed") == "true"
        page.keyboard.press("Escape")
        assert page.locator("[aria-pressed=true], [aria-selected=true]").count() == 0


def test_calls_can_be_seen_in_time_and_all(browser: Browser, pages: dict[str, Written]) -> None:
    """The other views draw, and complain about nothing."""
    complaints: list[str] = []
    page = opened(browser, pages["wide"].path, complaints, viewport=WIDE)
    few = page.locator("#calls tbody tr").count()
    page.click("#all-calls")
    assert page.locator("#calls tbody tr").count() > few
    assert page.locator("#calls tr.marked").count() == 1
    page.select_option("#how", "time")
    assert page.locator("#calls svg rect").count() > few
    page.select_option("#axis", "team:0")
    assert page.locator("#map [role=group]").count() > 1
    page.locator("#raw summary").click()
    page.locator("#json", has_text='"findings"').wait_for()
    assert complaints == []


def test_a_ticket_is_copied(browser: Browser, pages: dict[str, Written]) -> None:
    """What goes to the clipboard is the report in Markdown, and a command as it runs."""
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(pages["small"].path.as_uri())
    page.click("button[data-copy=ticket]")
    page.locator("[data-copy=ticket]", has_text="copied").wait_for()
    text = page.evaluate("navigator.clipboard.readText()")
    assert text == render("markdown", pages["small"].report)
    context.close()


def test_the_page_offers_no_way_out(browser: Browser, pages: dict[str, Written]) -> None:
    """No link leaves the page, and a script that tries to ask somebody may not."""
    complaints: list[str] = []
    page = opened(browser, pages["small"].path, complaints)
    assert page.locator("a[href^='http']").count() == 0
    assert page.evaluate("fetch('http://127.0.0.1:9/').then(() => true, () => false)") is False
    assert any("Content Security Policy" in text for text in complaints)


@pytest.mark.parametrize("name", JOBS)
def test_no_page_is_wider_than_a_phone(
    browser: Browser, pages: dict[str, Written], name: str
) -> None:
    """Wide things scroll in themselves."""
    page = opened(browser, pages[name].path, [], viewport=NARROW)
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]


@pytest.mark.parametrize("width", [380, 1200])
def test_nothing_from_a_dump_runs_or_spills(browser: Browser, tmp_path: Path, width: int) -> None:
    """Scripts in names are text, and no page is wider than its window, not even a phone's."""
    (tmp_path / "report.html").write_text(render("html", hostile()))
    complaints: list[str] = []
    viewport = {"width": width, "height": 800}
    page = opened(browser, tmp_path / "report.html", complaints, viewport=viewport)
    assert complaints == []
    assert page.locator("img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
