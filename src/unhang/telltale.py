"""What gives a secret away: the name it is kept under, or its own form. One table for all.

`surroundings` takes none of these from a node in the first place, `redact` removes them from what
is there already. Both err on the side of removing. It replaces nothing itself.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["ASSIGNED", "FORMS", "is_secret_name", "is_secret_value", "without_secrets"]

_WORDS: Final = (
    r"secret|passw(?:or)?d|passphrase|credential|cookie|\bdsn|connection[_-]?string|"
    r"(?:api|access|private|auth|signing|session)[_-]?key"
)
_NAME: Final = re.compile(
    # a variable may be called by less than makes a secret of a word in a text
    rf"{_WORDS}|token|auth|private|passw|(?:^|_)dsn|(?:^|_)key$",
    re.IGNORECASE,
)
FORMS: Final = tuple(
    re.compile(pattern, flags)
    for pattern, flags in (
        (
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
            re.DOTALL,
        ),
        (r"(?<=://)[^\s/:@]+:[^\s/@]+(?=@)", 0),  # user:password in a URL
        (r"\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*", 0),  # JSON web tokens
        (r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", 0),
        (r"\bgh[pousr]_\w{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}", 0),
        (r"\bhf_[A-Za-z0-9]{16,}\b|\bsk-[\w-]{16,}|\bxox[abprs]-[\w-]{10,}|\bAIza[\w-]{30,}", 0),
        (r"(?<=\bbearer )[\w.~+/=-]{8,}|(?<=\bbasic )[\w+/=]{8,}", re.IGNORECASE),
    )
)
"""Secrets that are known by their form, wherever they stand."""

_SIGN: Final = r"(?:\s*[=:]\s*|(?<=key)\s+)[\"']?"
_VALUE: Final = r"[^\s\"',;&]{4,}"
ASSIGNED: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # NAME_SECRET=value, "password": "value", --api-key value
        rf"(?<![A-Za-z])(?P<kept>[\w-]*(?:{_WORDS})s?[\"']?{_SIGN})(?P<value>{_VALUE})",
        # the same for tokens, of which models have harmless ones: a mere number is none
        rf"(?<![A-Za-z])(?P<kept>[\w-]*token[\"']?{_SIGN})(?![\d.,]+(?!\S))(?P<value>{_VALUE})",
    )
)
"""Secrets that are known by the name before them: `kept` is that name, `value` the secret."""


def is_secret_name(name: str) -> bool:
    """Whether a variable or an option of this name holds a secret."""
    return _NAME.search(name) is not None


def is_secret_value(text: str) -> bool:
    """Whether a text holds a secret that is known by its form."""
    return any(form.search(text) for form in FORMS)


def without_secrets(text: str, word: str) -> str:
    """A text with a word in place of each secret that is known by its form."""
    for form in FORMS:
        text = form.sub(word, text)
    return text
