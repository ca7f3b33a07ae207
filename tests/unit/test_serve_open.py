"""`unhang serve --open` shows the token to nobody but the browser of its user."""

from __future__ import annotations

import stat
import webbrowser
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

from unhang.cli.serve import _open_page


def test_the_token_is_in_no_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The browser is given a file, which its owner alone can read, and which leads on."""
    asked: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: asked.append(url) or True)
    monkeypatch.setenv("UNHANG_RUNTIME_DIR", str(tmp_path / "runtime"))
    _open_page("http://127.0.0.1:8770/enter?token=abc&to=live")
    (url,) = asked
    assert "abc" not in url
    page = Path(url2pathname(urlsplit(url).path))
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert "enter?token=abc&amp;to=live" in page.read_text()
