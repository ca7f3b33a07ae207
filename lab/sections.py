"""Sections of a page that several commands write, each by its heading: nobody touches another's."""

from __future__ import annotations


def section_of(page: str, heading: str) -> str:
    """The section under a heading ("## …"), up to the next one; "" where the page has none."""
    start = page.find(f"{heading}\n")
    if start < 0:
        return ""
    end = page.find("\n## ", start + len(heading))
    return page[start:] if end < 0 else page[start : end + 1]


def in_page(page: str, section: str) -> str:
    """A page with this section, in place of the one of its heading or at the end."""
    old = section_of(page, section.partition("\n")[0])
    if not page.strip():
        return section
    if not old:
        return f"{page.rstrip()}\n\n{section}"
    after = page.partition(old)[2]
    return page.replace(old, f"{section.rstrip()}\n\n" if after else section)
