"""Pages as a reader meets them: whole, and with links that lead somewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / ".github").rglob("*")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def anchors_of(page: Path) -> set[str]:
    """What a link into a page can name: its headings, as GitHub writes them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", title.lower()).strip() for title in titles]
    return {title.replace(" ", "-") for title in plain}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.is_file()], ids=lambda p: str(p.relative_to(ROOT))
)
def test_links_lead_somewhere(page: Path) -> None:
    """Files that are there, headings that are there."""
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or target.is_dir() or anchor in anchors_of(target), link


def test_no_merge_is_left_half_done() -> None:
    """Git's own marks of a conflict stand in no file that it keeps."""
    found = subprocess.run(
        ["git", "grep", "-lE", "^(<{7}|>{7}) "],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout.split() == []
