"""What gives a secret away: the name it is kept under, or its own form. One table for all.

Everything that keeps a command line, an environment or a text of the job asks here first: the
collectors, `run`, the recorder inside the job. So it needs the standard library only, and knows
nothing of the rest. It errs on the side of removing; what neither name nor form tells, it cannot
know. For copies that leave the house it also tells the contrary: what is known to be harmless.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Final

from unhang.telltale.forms import FORMS
from unhang.telltale.providers import LONG, PROVIDERS, SHAPES
from unhang.telltale.short_options import PROGRAMS
from unhang.telltale.tells import (
    ASSIGNED,
    BLOCKS,
    HINTS,
    NAME,
    NAMED,
    NUMBER,
    STRONG_NAME,
    WORDS,
)

__all__ = [
    "REMOVED",
    "harmless_command",
    "harmless_log",
    "is_known_variable",
    "is_secret_field",
    "is_secret_name",
    "known_words",
    "replaced",
    "without_secrets",
]

REMOVED: Final = "<removed>"

Put = Callable[[str], str]
"""What stands in a secret's place."""

_SHORT: Final = re.compile(r"-\w\w?")
_SHELL_WORD: Final = re.compile(r"(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'])+")


def is_secret_name(name: str) -> bool:
    """Whether a variable or an option of this name holds a secret."""
    return any(re.search(names, name, re.IGNORECASE) for names in (STRONG_NAME, NAME))


def is_secret_field(name: str, value: str) -> bool:
    """Whether a field of this name in a file is a secret as a whole, whatever it looks like."""
    if re.search(STRONG_NAME, name, re.IGNORECASE):
        return True
    is_token = re.search(r"token$", name, re.IGNORECASE) is not None
    return is_token and not re.fullmatch(r"[\d.,]*", value)


def _hides(name: str, value: str) -> bool:
    """Whether a value of an option is a secret: the numbers of tokens and keys are none."""
    if re.search(STRONG_NAME, name, re.IGNORECASE):
        return True
    return is_secret_name(name) and not re.fullmatch(NUMBER, value)


@cache
def _lines() -> tuple[re.Pattern[str], ...]:
    """Secrets within a line, by form or by what stands before; `value`, or all, is the secret."""
    mixed = (
        r"(?=[a-z_.-]{0,60}[A-Z0-9]|[a-z]{16})"  # a name of a function may begin as a token does
    )
    rows = (
        f"(?:{'|'.join(map(re.escape, names.split()))}){mixed}(?:{body})"
        for names, body in PROVIDERS
    )
    # A sign that is escaped in a URL or in a string may stand before.
    tokens = rf"(?:(?<![A-Za-z0-9])|(?<=%[0-9A-F]{{2}})|(?<=\\[nrt]))(?:{'|'.join(rows)})"
    forms = (re.compile(pattern, flags) for pattern, flags in FORMS)
    shapes = map(re.compile, SHAPES)
    return (re.compile(tokens), *shapes, *forms, *(re.compile(p, re.IGNORECASE) for p in ASSIGNED))


@cache
def _named() -> tuple[re.Pattern[str], ...]:
    """The same by a name; the first tells whether a line has any, for each takes as long as it."""
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in (WORDS, *NAMED))


@cache
def _blocks() -> tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]:
    return tuple((re.compile(there), re.compile(row, re.DOTALL)) for there, row in BLOCKS)


@cache
def _hints() -> re.Pattern[str]:
    """One pattern of all hints, by their first letters: trying them in turn takes four times."""
    prefixes = {name.lower() for names, _ in PROVIDERS for name in names.split()}
    by_first: dict[str, list[str]] = {}
    for hint in sorted({*HINTS, *(n for n in prefixes if not any(hint in n for hint in HINTS))}):
        by_first.setdefault(hint[0], []).append(re.escape(hint[1:]))
    told = "|".join(f"{re.escape(c)}(?:{'|'.join(r)})" for c, r in by_first.items())
    return re.compile(rf"{told}|(?<![a-z0-9])[a-z0-9]{{{LONG}}}")


def without_secrets(text: str) -> str:
    """A text with a word in place of each secret that its form or the name before it tells."""
    return replaced(text, lambda _: REMOVED)


def replaced(text: str, put: Put) -> str:
    """A text with something else in place of each secret in it.

    Args:
        text: Of any number of lines; the work grows with its length, whatever it holds.
        put: Gets a secret, or what was put in its place before; returns what is to stand there.
    """

    def change(found: re.Match[str]) -> str:
        groups = found.re.groupindex
        return (found["kept"] if "kept" in groups else "") + put(
            found["value" if "value" in groups else 0]
        )

    for is_there, block in _blocks():
        if is_there.search(text):
            text = block.sub(change, text)
    if not _may_hold(text):
        return text
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if _may_hold(line):
            clean = line
            for pattern in _for(line):
                clean = pattern.sub(change, clean)
            lines[number] = _after_options(clean, put)
    return "\n".join(lines)


def _for(line: str) -> tuple[re.Pattern[str], ...]:
    names, *named = _named()
    return (*_lines(), *named) if names.search(line) else _lines()


def _may_hold(text: str) -> bool:
    low = text.lower()
    return bool(_hints().search(low)) or not PROGRAMS.keys().isdisjoint(low.split())


def harmless_log(data: bytes) -> bytes:
    """The bytes of a log without the secrets that `without_secrets` finds; all else as it was."""
    text = data.decode("utf-8", "surrogateescape")
    return without_secrets(text).encode("utf-8", "surrogateescape")


def harmless_command(words: Sequence[str]) -> list[str]:
    """A command line with its secrets replaced: `--api-key X`, `--pw=X`, URLs with passwords.

    Args:
        words: As the program got them; a word that is a command of its own is cleaned as a text.
    """
    if not _may_hold(" ".join(words)):
        return list(words)
    clean: list[str] = []
    tool = _Tool()
    before = ""
    for word in words:
        clean.append(_harmless_word(before, word, tool.secret_from(word)))
        before = word
    return clean


def _harmless_word(before: str, word: str, start: int) -> str:
    """A word of a command line, by the word before it and by what it says itself."""
    if start >= 0:
        return word[:start] + REMOVED
    named = before.startswith("-") and "=" not in before and _hides(before, word)
    if word and not word.startswith("-") and named:
        return REMOVED
    name, equals, value = word.partition("=")
    while equals and " " not in name:
        if _hides(name, value):
            return f"{word[: len(word) - len(value)]}{REMOVED}"
        name, equals, value = value.partition("=")
    return without_secrets(word)


def _after_options(line: str, put: Put) -> str:
    """A line of a shell's without what follows the short options of known programs."""
    if not any(word.rpartition("/")[2].strip("\"'") in PROGRAMS for word in line.split()):
        return line
    tool, done, parts = _Tool(), 0, []
    for found in _SHELL_WORD.finditer(line):
        word = found[0]
        start = tool.secret_from(word)
        if start >= 0:
            quote = word[start : start + 1] if word[start : start + 1] in ("'", '"') else ""
            secret = word[start:].strip(quote) if quote else word[start:]
            parts += [line[done : found.start() + start], quote, put(secret), quote]
            done = found.end()
    return "".join([*parts, line[done:]])


class _Tool:
    """Goes through the words of a command line, and knows which options of it are followed."""

    def __init__(self) -> None:
        self._options: tuple[str, ...] = ()
        self._before = ""

    def secret_from(self, word: str) -> int:
        """Where in a word a secret begins; -1 where it holds none."""
        before, self._before = self._before, word
        self._options += PROGRAMS.get(word.rpartition("/")[2].strip("\"'"), ())
        if word in ("|", "||", "&&", ";"):
            self._options = ()
        if not self._options or word == before == "":
            return -1
        if not word.startswith("-") and self._is_followed(before):
            return 0
        return next((len(o) for o in self._glued(word)), -1)

    def _is_followed(self, before: str) -> bool:
        """Whether an option is before, also as the last of several letters: -sSu."""
        short = before[:1] == "-" and before[1:2] != "-" and f"-{before[-1]}"
        return before in self._options or short in self._options

    def _glued(self, word: str) -> Iterator[str]:
        for option in self._options:
            if word.startswith((f"{option}=", f"{option}:")):
                yield f"{option}="
            elif _SHORT.fullmatch(option) and word != option and word.startswith(option):
                yield option


# ------------------------------------------------------------------ what is known to be harmless

_PLAIN: Final = (
    r"[+-]?[\d.,:xeE+-]{1,16}[KMGTBkmgtb]?|true|false|yes|no|on|off|none|auto|nccl|gloo|mpi|ucc|"
    r"cuda|cpu|c10d|static|spawn|fork|forkserver|(?:bf|fp|float|bfloat)\d{1,2}|info|warn|debug|trace"
)
"""Values that identify no person, whatever the option is called."""

_RUNS: Final = (
    r"[\w./@+~-]+\.(?:py|sh)|--?|(?:[\w./@+~-]*/)?(?:python[\d.]*|torchrun|srun|mpirun|mpiexec|"
    r"accelerate|deepspeed|ray|bash|sh|env|timeout|nohup|numactl|unhang|run|launch|exec)"
)
"""Words of a command line that say what runs, wherever they stand."""

_LIBRARIES: Final = (
    "CUDA_", "FI_", "GLOO_", "GOMP_", "HIP_", "HOSTNAME", "HSA_", "KMP_", "LD_", "MASTER_ADDR",
    "MKL_", "NCCL_", "NVIDIA_", "OMP_", "RCCL_", "ROCR_", "SLURMD_NODENAME", "TORCH_",
    "TP_SOCKET_", "UCC_", "UCX_",
)  # fmt: skip
"""Variables whose values libraries define, or that hold a host's name."""


def is_known_variable(name: str, value: object) -> bool:
    """Whether a variable's value may stay, once names are replaced in it."""
    return not isinstance(value, str) or not value or name.startswith(_LIBRARIES) or _plain(value)


def known_words(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each word of a command line as what is known of it, and the unknown rest.

    Known are the program, scripts, modules, names of options, and plain values.
    """
    before = "-m"  # the first is the program
    for word in words:
        name, equals, value = word.partition("=")
        if before == "-m" or re.fullmatch(_RUNS, word) or _plain(word):
            yield word, ""
        elif equals and re.fullmatch(r"[\w.+-]{1,80}", name):
            yield (word, "") if _plain(value) or not value else (f"{name}=", value)
        elif re.fullmatch(r"--[A-Za-z][\w.-]{0,80}|-[A-Za-z]", word):
            yield word, ""
        else:
            yield "", word
        before = word


def _plain(value: str) -> bool:
    return re.fullmatch(_PLAIN, value, re.IGNORECASE) is not None
