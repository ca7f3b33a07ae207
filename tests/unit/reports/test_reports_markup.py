from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from case_samples import START_NS, WORLD, stuck_case
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from report_samples import SAMPLES, hostile, never_joined
from syrupy.assertion import SnapshotAssertion

from benchmarks.columns import case_of
from unhang.analysis import diagnose
from unhang.analysis.picture import picture_of
from unhang.case import Case, Dump
from unhang.casebuilder import CallRow, CaseBuilder
from unhang.catalogue import DOCS
from unhang.model import OpName
from unhang.report import Report
from unhang.reports import render
from unhang.reports.markdown import escape

MARKDOWN = MarkdownIt("gfm-like", {"linkify": False})


class Page(HTMLParser):
    """Collects what a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the tag and everything that could be fetched or run; a place in the page is none."""
        self.tags.append(tag)
        self.links += [
            key
            for key, value in attrs
            if (key in ("src", "href") and not (value or "").startswith("#"))
            or key.startswith("on")
        ]

    def handle_data(self, data: str) -> None:
        """Keep the text."""
        self.words.append(data)


def test_the_page_explains_its_kinds_by_itself() -> None:
    """What `unhang explain` says is in the page, once a kind, and the head leads there."""
    text = render("html", never_joined())
    words = " ".join(Page(text).words)
    assert text.count('id="UH101"') == 1
    assert '<a href="#UH101">UH101</a>' in text
    assert "What else it could be" in words
    assert "UH101 never-joined: what it means" in words


def test_markdown_is_pinned(snapshot: SnapshotAssertion) -> None:
    """What gets pasted into an issue."""
    assert render("markdown", never_joined()) == snapshot


def test_markdown_of_a_hostile_report_forms_no_markup() -> None:
    """Nothing from a dump becomes a tag, a link, a mention or a reference to an issue.

    The addresses of our own pages are the only links.
    """
    text = render("markdown", hostile())
    page = Page(MARKDOWN.render(text))
    assert set(page.tags) <= {"a", "h3", "p", "strong", "ul", "ol", "li", "br", "details",
                              "summary", "table", "thead", "tbody", "tr", "th", "td",
                              "sub"}  # fmt: skip
    own = re.findall(rf"<{re.escape(DOCS)}/\S+>", text)
    assert page.links == ["href"] * len(own)
    for address in own:
        text = text.replace(address, "")
    assert not re.search(r"[#@]\w", text)


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab _*`~[]()<>|&#@\\!-+1.$/:", max_size=30))
def test_escaped_text_means_only_itself(text: str) -> None:
    """Whatever the text, Markdown shows it as it is."""
    words = " ".join(text.split())
    page = Page(MARKDOWN.render(escape(words)))
    assert set(page.tags) <= {"p"}
    assert "".join(page.words).strip() == words


def page_of(report: Report, case: Case | None = None) -> str:
    """The HTML page as the command line makes it."""
    return render("html", report, case, None, picture_of(case, report) if case else None)


def facts_in(text: str) -> dict[str, Any]:
    """The data that a page draws from."""
    found = re.search(r'<script type="application/json" id="facts">(.*?)</script>', text)
    assert found is not None
    facts: dict[str, Any] = json.loads(found[1])
    return facts


def test_html_is_safe_and_whole() -> None:
    """No tag from a dump, nothing to be fetched, every sentence there."""
    page = Page(page_of(hostile()))
    assert page.links == []
    assert "img" not in page.tags
    assert page.tags.count("script") == 2
    assert "<img src=x onerror=alert(1)>" in "".join(page.words)


def test_html_data_cannot_break_out() -> None:
    """A call named like the end of a script stays inside its string."""
    builder = CaseBuilder()
    name = OpName("x", "", "</script><script>alert(1)</script>")
    builder.add_dump(Dump(0, 0, "0"), [CallRow(WORLD, name, seq=1, created_ns=START_NS)])
    case = builder.build()
    text = page_of(diagnose(case), case)
    assert Page(text).tags.count("script") == 2
    assert "</script><script>alert(1)</script>" in facts_in(text)["strings"]


def test_html_holds_the_whole_report() -> None:
    """Who reads the page's data has what --format json prints."""
    case = stuck_case()
    report = diagnose(case)
    assert facts_in(page_of(report, case))["report"] == json.loads(render("json", report))


def test_html_lets_nothing_else_run() -> None:
    """The policy names this style and this script by their hashes, and allows nothing else."""
    text = page_of(never_joined())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy[1]
    assert " style=" not in text.split("<script", 1)[0]


def test_html_of_its_own_is_small() -> None:
    """What the page adds to its data."""
    assert len(page_of(Report("healthy", "Nothing."))) < 300_000


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_html_of_every_sample_holds_its_verdict(name: str) -> None:
    """The page says what the terminal says."""
    from unhang.wording import printable

    assert printable(SAMPLES[name]().summary) in "".join(
        Page(render("html", SAMPLES[name]())).words
    )


@pytest.mark.parametrize(("ranks", "limit"), [(64, 1_000_000), (1024, 8_000_000)])
def test_pages_of_large_jobs_are_small(ranks: int, limit: int) -> None:
    """With 2,000 calls of each rank: the picture is bounded, however much there is."""
    case = case_of(ranks, 2_000)
    report = diagnose(case)
    page = render("html", report, case, None, picture_of(case, report))
    assert len(page.encode()) <= limit
    assert report.status == "problem"
