"""The examples on the pages of the codes are what the program says today."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "codes").glob("*.md"))


def test_examples_are_up_to_date() -> None:
    """Every job is made and diagnosed again."""
    command = [sys.executable, "docs/refresh.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run: python docs/refresh.py\n{done.stdout}{done.stderr}"


def test_examples_show_their_code() -> None:
    """The example has the code of its page, the near miss has not."""
    for page in PAGES:
        made = dict(
            re.findall(
                r"<!-- made: ([\w-]+):UH\d+ -->(.*?)<!-- end -->", page.read_text(), re.DOTALL
            )
        )
        if made:
            assert re.search(rf"^{page.stem} ", made["example"], re.MULTILINE), page.name
            assert page.stem not in made["near-miss"], page.name
