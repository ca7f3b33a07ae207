"""What the site adds to the pages in docs/: those of the project's root, and links between both.

A hook of MkDocs (mkdocs.yml). Links that leave both, to scripts and folders, become plain text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
FROM_ROOT = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
FOLDERS = {"docs/codes": "kinds.md"}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s:#]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the root."""
    for name, page in FROM_ROOT.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links lead to where pages lie on the site."""
    inside = Path(page.file.src_uri)
    from_root = {new: Path(old) for old, new in FROM_ROOT.items()}
    source = from_root.get(inside.as_posix(), Path("docs") / inside)
    return _LINK.sub(lambda found: _led(found, source, inside), markdown)


def _led(found: re.Match[str], source: Path, inside: Path) -> str:
    """One link of a page, whose file is `source` in the project and `inside` on the site."""
    image, words, name, anchor = found.groups()
    target = (ROOT / source.parent / name).resolve()
    if not target.is_relative_to(ROOT):
        return words
    path = target.relative_to(ROOT).as_posix()
    new = FROM_ROOT.get(path) or FOLDERS.get(path)
    if new is None and path.startswith("docs/") and target.is_file():
        new = path.removeprefix("docs/")
    if new is None:
        return words
    up = "../" * len(inside.parent.parts)
    return f"{image}[{words}]({up}{new}{anchor or ''})"
