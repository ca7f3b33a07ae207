"""The list of cases, two of them compared, and the console: what they show, without a server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote_plus

import pytest

from unhang.analysis import diagnose
from unhang.context.recalled import Past, facts_of
from unhang.context.tallies import history_of
from unhang.ingest import load
from unhang.serve import console, pages
from unhang.serve.caselist import PAGE, CaseQuery

PASTS = {
    str(number): Past(
        path=Path(f"/cases/{number}"),
        time_s=1e9 + number,
        job_id=f"job{number % 3}",
        status="problem" if number % 2 else "slow",
        summary=f"Verdict {number}.",
        culprits=(number,),
        places=(f"train.py:{number}",),
    )
    for number in range(500)
}


def shown(**query: str) -> list[int]:
    """The cases of a page, in order."""
    return [int(n) for n in re.findall(r">Verdict (\d+)\.", page(**query))]


def page(**query: str) -> str:
    """The list as asked for."""
    return "\n".join(pages.list_page(PASTS, {}, CaseQuery.of(query)))


def test_the_newest_come_first_and_the_rest_is_on_other_pages() -> None:
    """All are reached; what is no page is the first one."""
    assert shown() == list(range(499, 499 - PAGE, -1))
    assert shown(page="2") == list(range(99, -1, -1))
    assert shown(page="x") == shown(page="99999999") == shown()
    assert "201 to 400" in page(page="1")


def test_it_can_be_searched_and_filtered() -> None:
    """By job, line, or status, all at once."""
    assert shown(text="TRAIN.PY:41", status="problem") == [419, 417, 415, 413, 411, 41]
    assert "6 cases of 500" in page(text="train.py:41", status="problem")
    assert shown(text="no such") == []


@pytest.mark.parametrize(("sort", "first"), [("culprits", 0), ("job", 498), ("nonsense", 499)])
def test_it_can_be_sorted(sort: str, first: int) -> None:
    """By any column with a name; of equal ones the newest first; links keep what was asked."""
    assert shown(sort=sort)[0] == first
    assert "text=a+%26+b&amp;status=slow&amp;sort=job" in page(text="a & b", status="slow")


def test_what_is_known_comes_before_what_is_judged() -> None:
    """The first rows are given before any case is read; one that cannot be read is named."""
    judged: list[str] = []

    def coming() -> Iterator[tuple[str, Path, Past | str]]:
        for name in ("late", "odd", "broken"):
            judged.append(name)
            past = replace(PASTS["1"], summary=f"Verdict of {name}.", job_id=name)
            yield name, Path(name), "no dump in it" if name == "broken" else past

    lines = pages.list_page({"1": PASTS["1"]}, {}, CaseQuery.of({"text": "e"}), coming())
    before = ""
    while "Verdict 1." not in before:
        before += next(lines)
    assert judged == []
    rest = "".join(lines)
    assert "Verdict of late." in rest
    assert "Verdict of odd." in rest
    assert "broken: no dump in it" in rest
    assert rest.index("Verdict of odd.") < rest.index("compare a with b") < rest.index("</form>")


def test_history_leads_to_cases_and_has_a_chart() -> None:
    """A bar a week; each name is a search that finds what it counts."""
    found = history_of(list(PASTS.values()))
    text = pages.history_page(found)
    assert sum(found.weeks.values()) == found.problems
    assert text.count("<rect") == len(found.weeks)
    links = re.findall(r'href="/\?text=([^"&]+)', text)
    assert links
    for name in map(unquote_plus, links):
        assert CaseQuery(text=name).chosen(PASTS)


def test_what_was_asked_is_text() -> None:
    """It comes back in the field, and is nothing else there."""
    assert "<script>" not in page(text="<script>", status="<script>", sort="<script>")


def test_two_incidents_show_first_what_changed() -> None:
    """The revision and the command; what is the same stands below, what neither has is left out."""
    one = replace(PASTS["1"], command="torchrun train.py", revision="4f2a9c1 (main)")
    other = replace(one, revision="77aa001 (main)")
    text = pages.comparison_page(("a", one), ("b", other))
    words = re.sub(r"<[^>]+>", " ", text)
    assert words.index("revision") < words.index("verdict") < words.index("command")
    assert words.count("changed") == 1
    assert "GPUs and links" not in words


def test_facts_of_whose_incident_it_is_are_kept(tmp_path: Path) -> None:
    """With and without them in the report."""
    report = {"status": "slow", "summary": "", "identity": None}
    assert facts_of(tmp_path, report).revision == ""
    identity = {"command": ["torchrun", "a.py"], "revision": "4f2a9c1", "versions": ["torch 2.13"]}
    past = facts_of(tmp_path, report | {"identity": identity})
    assert (past.command, past.revision, past.versions) == (
        "torchrun a.py",
        "4f2a9c1",
        ("torch 2.13",),
    )


def test_the_examples_of_the_console_run() -> None:
    """And each table that it names is there."""
    pytest.importorskip("duckdb")
    from unhang import tables

    case = load([Path("examples/never-joined")])
    text = console.console_page("k", "", (), (), "")
    assert "<code>calls</code>" in text
    with tables.written(case, diagnose(case)) as path:
        for sql in console._EXAMPLES:
            with tables.asking(path, sql, 10.0) as found:
                assert list(found.rows)


def test_an_answer_can_be_taken_as_csv() -> None:
    """Quoted where it must be; what was cut is said."""
    assert console.csv_of(("a", "b"), [(1, "x,y")], "") == 'a,b\r\n1,"x,y"\r\n'
    assert console.csv_of(("a",), [(1,)], "Only one.").endswith("# Only one.\r\n")
