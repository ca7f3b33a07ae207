"""`unhang PATH`: which command reads what lies there."""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches
from glob import glob, has_magic
from pathlib import Path

from unhang.errors import UsageError
from unhang.wording import shell_word

_LOOKED_AT = 4_096
_JSON = re.compile(rb'\s*(?:\{|\[\s*[\[{"\]])')
_ELF = b"\x7fELF"


def command_for(word: str, commands: Collection[str]) -> str:
    """The command that judges a path.

    Args:
        word: What was given in the place of a command: a path, a glob, or "-".
        commands: All that there are.

    Raises:
        UsageError: It is neither a command nor a path.
    """
    if word == "-":
        return "paste"
    found = sorted(glob(word)) if has_magic(word) else [word]  # noqa: PTH207 - absolute patterns
    path = Path(found[0]) if found else Path(word)
    if not path.exists():
        near = get_close_matches(word, sorted(commands), n=1)
        more = f"Did you mean: unhang {near[0]}?" if near else "unhang --help lists the commands."
        raise UsageError(f"there is no command, file or directory {word!r}", more)
    return _for_file(path) if path.is_file() else "diagnose"


def _for_file(path: Path) -> str:
    from unhang.ingest.discover.sniff import is_recorded
    from unhang.logs.scan import is_text

    if path.suffix == ".py":
        start = f"-- python {shell_word(str(path))}"
        raise UsageError(
            f"{path} is a program, not evidence of a hang",
            f"unhang run {start} watches it; unhang rehearse {start} tries it without GPUs.",
        )
    with path.open("rb") as file:
        head = file.read(_LOOKED_AT)
    if head.startswith(_ELF):
        return "core"
    if path.suffix in (".gz", ".zst") and not path.name.endswith((".tar.gz", ".tar.zst")):
        return "logs"
    is_dump = _JSON.match(head) or is_recorded(head)
    return "paste" if not head or (is_text(head) and not is_dump) else "diagnose"
