"""The page that takes a paste: `unhang paste` judges it in a process of its own, which is bounded.

Nothing of it is kept: neither the text nor the verdict is written anywhere.
"""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from urllib.parse import parse_qs

from unhang.isolated import python_command
from unhang.wording import printable

MOST_BYTES = 4 << 20
"""Of one paste: an issue with all its stacks is smaller; logs of any size go to `unhang logs`."""
TOO_LONG = f"The text is longer than {MOST_BYTES >> 20} MiB: give it to unhang paste as a file."
_EMPTY = "There is no text."
_FIELD = b"text="
_JUDGE_S = 60.0


async def text_of(body: AsyncIterator[bytes]) -> bytes | None:
    """The text of a form, or of a body that is one; None where it is too long."""
    data = b""
    async for chunk in body:
        data += chunk
        is_form = data.startswith(_FIELD)
        if len(data) > MOST_BYTES * (3 if is_form else 1) + len(_FIELD):
            return None
    if data.startswith(_FIELD):
        fields = parse_qs(data.decode("latin-1"), errors="replace", max_num_fields=4)
        data = fields.get("text", [""])[0].encode("utf-8", "replace")
    return data if len(data) <= MOST_BYTES else None


def judged(text: bytes) -> tuple[str, str]:
    """The page of a verdict, or "" and why there is none."""
    if not text.strip():
        return "", _EMPTY
    command = python_command("unhang", "paste", "-", "--format", "html")
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            command, input=text, capture_output=True, timeout=_JUDGE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "", f"No verdict within {_JUDGE_S:.0f} s."
    page = done.stdout.decode("utf-8", "replace")
    said = done.stderr.decode("utf-8", "replace").removeprefix("unhang: ").split("\n", 1)[0]
    return page, "" if page else printable(f"No verdict: {said}", 300)
