from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from case_samples import MS, START_NS, WORLD, stuck_case
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from report_samples import SAMPLES, hostile, never_joined
from syrupy.assertion import SnapshotAssertion

from unhang.case import Case, Dump
from unhang.casebuilder import CallRow, CaseBuilder
from unhang.model import OpName
from unhang.reports import render
from unhang.reports.markdown import escape
from unhang.reports.timeline import MAX_CALLS_OF_A_RANK, MAX_RANKS, lanes

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
        """Keep the tag and everything that could be fetched or run."""
        self.tags.append(tag)
        self.links += [key for key, _ in attrs if key in ("src", "href") or key.startswith("on")]

    def handle_data(self, data: str) -> None:
        """Keep the text."""
        self.words.append(data)


def test_markdown_is_pinned(snapshot: SnapshotAssertion) -> None:
    """What gets pasted into an issue."""
    assert render("markdown", never_joined()) == snapshot


def test_markdown_of_a_hostile_report_forms_no_markup() -> None:
    """Nothing from a dump becomes a tag, a link, a mention or a reference to an issue."""
    page = Page(MARKDOWN.render(render("markdown", hostile())))
    assert set(page.tags) <= {"h3", "p", "strong", "ul", "ol", "li", "br", "details", "summary",
                              "table", "thead", "tbody", "tr", "th", "td", "sub"}  # fmt: skip
    assert page.links == []
    assert not re.search(r"[#@]\w", render("markdown", hostile()))


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab _*`~[]()<>|&#@\\!-+1.$/:", max_size=30))
def test_escaped_text_means_only_itself(text: str) -> None:
    """Whatever the text, Markdown shows it as it is."""
    words = " ".join(text.split())
    page = Page(MARKDOWN.render(escape(words)))
    assert set(page.tags) <= {"p"}
    assert "".join(page.words).strip() == words


def test_html_is_safe_and_whole() -> None:
    """No tag from a dump, nothing to be fetched, every sentence there."""
    page = Page(render("html", hostile()))
    assert page.links == []
    assert "img" not in page.tags
    assert "script" not in page.tags
    text = "".join(page.words)
    assert "<img src=x onerror=alert(1)>" in text


def test_html_draws_calls_when_it_has_them() -> None:
    """The figure's data cannot end its script element, whatever a call is named."""
    text = render("html", never_joined(), stuck_case())
    found = re.search(r'<script type="application/json" id="figure">(.*?)</script>', text)
    assert found is not None
    figure = json.loads(found[1])
    assert [trace["name"] for trace in figure["data"]] == ["finished", "not finished"]


def test_html_data_cannot_break_out() -> None:
    """A call named like the end of a script stays inside its string."""
    builder = CaseBuilder()
    name = OpName("x", "", "</script><script>alert(1)</script>")
    builder.add_dump(Dump(0, 0, "0"), [CallRow(WORLD, name, created_ns=START_NS)])
    page = Page(render("html", never_joined(), builder.build()))
    assert page.tags.count("script") == 3


def big_case(ranks: int, calls: int) -> Case:
    """Many ranks with many calls, none with an end; the last of rank 5 waits."""
    builder = CaseBuilder()
    for rank in range(ranks):
        rows = [
            CallRow(
                WORLD,
                OpName("gloo:barrier", "gloo", "barrier"),
                seq=n,
                retired=not (rank == 5 and n == calls - 1),
                created_ns=START_NS + n * MS,
            )
            for n in range(calls)
        ]
        builder.add_dump(Dump(0, rank, str(rank)), rows)
    return builder.build()


def test_the_timeline_is_bounded_and_keeps_the_culprit() -> None:
    """Never more lanes and calls than a browser likes, and it says what is left out."""
    drawn = lanes(big_case(100, 120), never_joined(100, 5))
    assert drawn is not None
    assert len(drawn.ranks) == MAX_RANKS
    assert 5 in drawn.ranks
    assert len(drawn.lane) == MAX_RANKS * MAX_CALLS_OF_A_RANK
    assert drawn.left_out == "Drawn: 32 of 100 ranks, the last 100 calls of each."
    assert (drawn.kind.count("waiting"), drawn.kind.count("finished")) == (1, 0)


def test_without_times_there_is_no_timeline() -> None:
    """An old format or an empty case draws nothing."""
    assert lanes(Case(), never_joined()) is None
    builder = CaseBuilder()
    builder.add_dump(Dump(0, 0, "0"), [CallRow(WORLD, OpName("x", "", "x"))])
    assert lanes(builder.build(), never_joined()) is None


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_html_of_every_sample_holds_its_verdict(name: str) -> None:
    """The page says what the terminal says."""
    from unhang.wording import printable

    assert printable(SAMPLES[name]().summary) in "".join(
        Page(render("html", SAMPLES[name]())).words
    )
