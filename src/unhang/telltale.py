"""What gives a secret away: the name it is kept under, or its own form. One table for all.

Everything that keeps a command line, an environment or a text of the job asks here first: the
collectors, `run`, the recorder inside the job. So it needs the standard library only, and knows
nothing of the rest. It errs on the side of removing; what neither name nor form tells, it cannot
know. For copies that leave the house it also tells the contrary: what is known to be harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Final

__all__ = [
    "REMOVED",
    "assigned",
    "forms",
    "harmless_command",
    "harmless_log",
    "is_known_variable",
    "is_secret_name",
    "is_secret_value",
    "known_words",
    "without_secrets",
]

REMOVED: Final = "<removed>"

_WORDS: Final = (
    r"secret|passw(?:or)?d|passphrase|passcode|credential|cookie|\bdsn|connection[_-]?string|"
    r"(?:api|access|private|auth|signing|session|account|shared|storage|encryption|license|master|"
    r"wandb|openai|aws|hf|ssh|deploy)[_-]?key"
)
"""Words that make what follows a secret even in a sentence."""

_SHORT: Final = r"pass|passwd|pw|pwd|psw|creds?|sas|jwt|sig|signature|token|key|auth|pin"
"""Words that do so as the last word of an option's name only: --db-pass, --wandb-key."""

_STRONG_NAME: Final = (
    rf"{_WORDS}|(?<!by)(?<!com)pass(?!es|ive|ing|age|ed|[_-]?thr)|private|"
    r"(?:^|[_.-])(?:dsn|pw|pwd|psw|creds?|sas|jwt|pat|pin)$"
)
_NAME: Final = (
    # Models have tokens and authors, InfiniBand has a partition key (PKEY): harmless.
    r"token(?!i[sz])|auth(?!or(?!i))|(?<![_-]p)(?<!^p)key$|(?:^|[_.-])sig(?:nature)?$"
)
_NUMBER: Final = r"[\d.,+-]{1,7}[KMBkmb]?"

_PEM: Final = (
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)"
)
_FORMS: Final = (
    (_PEM, re.DOTALL),
    (r"(?<=://)[^\s/:@\"'<>]*:[^\s/\"'<>]+(?=@)", 0),  # user:password in a URL
    (r"(?<=https://)[^\s/:@\"'<>]{8,}(?=@)|(?<=http://)[^\s/:@\"'<>]{8,}(?=@)", 0),
    # the same without a scheme; image:tag@sha256 is none
    (
        (
            r"(?<![\w/@.:+-])(?:(?<=[\s\"'=])|(?<![^\s]))[A-Za-z_][\w.+-]{0,60}:"
            r"(?=[^\s/@:]*[A-Za-z])[^\s/@:\"'<>]{3,200}(?=@(?!sha\d)[A-Za-z0-9])"
        ),
        0,
    ),
    (
        (
            r"(?<=[?&])(?P<kept>[\w.%-]{0,60}(?:sig|signature|token|key|secret|passw?|passwd|password|"
            r"credential|auth|key-?id|code)=)(?P<value>[^\s&#\"'<>\\]+)"
        ),
        re.IGNORECASE,
    ),
    (r"\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*", 0),  # JSON web tokens
    (r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", 0),
    (r"\bgh[pousr]_\w{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}|\bnpm_[A-Za-z0-9]{30,}", 0),
    (r"\bhf_[A-Za-z0-9]{16,}\b|\bsk-[\w-]{16,}|\bxox[a-z]-[\w-]{10,}|\bAIza[\w-]{30,}", 0),
    (r"\b[rs]k_(?:live|test)_\w{10,}|\bnvapi-[\w-]{16,}|\bya29\.[\w-]{16,}|\bpypi-Ag[\w-]{16,}", 0),
    (r"(?<=\bbearer )[\w.~+/=-]{8,}", re.IGNORECASE),
    (r"(?<=\bbasic )(?=\S*[\d=])[A-Za-z0-9+/]{8,}={0,2}", re.IGNORECASE),
)

_SIGN: Final = r"(?:\s{0,8}[=:]\s{0,8}|(?<=key)\s{1,8})\\?[\"']?"
_VALUE: Final = (
    r"(?:(?<=\")[^\"\\\n]+(?=\\?\")|(?<=')[^'\\\n]+(?=\\?')|(?:[^\s\"',;&\\]|\\[^\"'\s]){4,})"
)
_BEFORE: Final = r"(?<![A-Za-z])(?P<kept>[\w.-]{0,80}"
_ASSIGNED: Final = (
    # Authorization: Scheme value
    rf"{_BEFORE}authorization\\?[\"']?\s*[=:]\s*\\?[\"']?(?:[a-z]{{3,12}}\s+)?)(?P<value>{_VALUE})",
    # NAME_SECRET=value, "password": "value", --api-key value
    rf"{_BEFORE}(?:{_WORDS})s?\\?[\"']?{_SIGN})(?P<value>{_VALUE})",
    # the same for tokens, of which models have harmless ones: a mere number is none
    rf"{_BEFORE}token\\?[\"']?{_SIGN})(?![\d.,]+(?!\S))(?P<value>{_VALUE})",
    # pw=value, "pass": "value"; PWD=/a/path is where somebody works
    (
        rf"(?<![A-Za-z])(?P<kept>(?:[\w.-]{{0,80}}[_.-])?(?:pass|pw|pwd|psw)"
        rf"(?:=|\\?[\"']\s*:\s*)\\?[\"']?)(?![\d.,]+(?!\S)|/)(?P<value>{_VALUE})"
    ),
    # --db-pass value, --wandb-key value
    (
        rf"(?<![\w-])(?P<kept>--?(?:[\w.-]{{0,80}}[_.-])?(?:{_SHORT}|{_WORDS})s?(?:=|\s+)\\?[\"']?)"
        r"(?!-|[\d.,]{1,6}(?!\S)|\\?[\"']?\s)(?P<value>(?<=\")[^\"\n]+|(?<=')[^'\n]+|[^\s\"']+)"
    ),
)

_HINTS: Final = (
    "@", "private key", "eyj", "akia", "asia", "ghp_", "gho_", "ghu_", "ghs_", "ghr_",
    "github_pat", "glpat-", "npm_", "hf_", "sk-", "sk_", "rk_", "xox", "aiza", "nvapi", "ya29",
    "pypi-", "bearer", "basic", "author", "secret", "pass", "credential", "cookie", "dsn",
    "connection", "key", "token", "auth", "pw", "psw", "cred", "sas", "jwt", "sig", "pin",
    "code=",
)  # fmt: skip
"""Where nothing of this stands in small letters, nothing needs a closer look."""

_FOLLOWED: Final = {
    "mysql": ("-p",), "mysqldump": ("-p",), "mysqladmin": ("-p",), "mariadb": ("-p",),
    "sshpass": ("-p",), "docker": ("-p",), "podman": ("-p",), "redis-cli": ("-a",),
    "curl": ("-u", "-U", "--user", "--proxy-user"), "ldapsearch": ("-w",), "mosquitto_pub": ("-P",),
    "mosquitto_sub": ("-P",), "wandb": ("login",),
}  # fmt: skip
"""Programs whose options are too short to tell: what follows them is a secret, glued or not."""


def is_secret_name(name: str) -> bool:
    """Whether a variable or an option of this name holds a secret."""
    return any(re.search(names, name, re.IGNORECASE) for names in (_STRONG_NAME, _NAME))


@cache
def forms() -> tuple[re.Pattern[str], ...]:
    """Secrets that are known by their form, wherever they stand; `kept`, if there is one, stays."""
    return tuple(re.compile(pattern, flags) for pattern, flags in _FORMS)


@cache
def assigned() -> tuple[re.Pattern[str], ...]:
    """Secrets that are known by the name before them: `kept` is that name, `value` the secret."""
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in _ASSIGNED)


def is_secret_value(text: str) -> bool:
    """Whether a text holds a secret that is known by its form."""
    return any(form.search(text) for form in forms())


def without_secrets(text: str, word: str = REMOVED) -> str:
    """A text with a word in place of each secret that its form or the name before it tells."""
    if not _may_hold(text):
        return text

    def put(found: re.Match[str]) -> str:
        return (found["kept"] if "kept" in found.re.groupindex else "") + word

    if "PRIVATE KEY" in text:  # the one form that has several lines
        text = forms()[0].sub(put, text)
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if _may_hold(line):
            for pattern in (*forms(), *assigned()):
                lines[number] = pattern.sub(put, lines[number])
    return "\n".join(lines)


def _may_hold(text: str) -> bool:
    low = text.lower()
    return any(hint in low for hint in _HINTS)


def harmless_log(data: bytes) -> bytes:
    """The bytes of a log without the secrets that `without_secrets` finds; all else as it was."""
    text = data.decode("utf-8", "surrogateescape")
    return without_secrets(text).encode("utf-8", "surrogateescape")


def harmless_command(words: Sequence[str]) -> list[str]:
    """A command line with its secrets replaced: `--api-key X`, `--pw=X`, URLs with passwords.

    Args:
        words: As the program got them; a word that is a command of its own is cleaned as a text.
    """
    if not _may_hold(" ".join(words)) and not any(map(_is_telling_program, words)):
        return list(words)
    clean: list[str] = []
    followed: tuple[str, ...] = ()
    before = ""
    for word in words:
        followed += _FOLLOWED.get(word.rpartition("/")[2], ())
        clean.append(_harmless_word(before, word, followed))
        before = word
    return clean


def _is_telling_program(word: str) -> bool:
    return word.rpartition("/")[2] in _FOLLOWED


def _harmless_word(before: str, word: str, followed: Sequence[str]) -> str:
    """A word of a command line, by the word before it and by what it says itself."""
    option = word.startswith("-")
    named = before.startswith("-") and "=" not in before and _hides(before, word)
    if word and not option and (named or before in followed):
        return REMOVED
    glued = next((o for o in followed if len(o) == 2 and word.startswith(o) and word != o), "")  # noqa: PLR2004 - "-p"
    if glued:
        return glued + REMOVED
    name, equals, value = word.partition("=")
    while equals and " " not in name:
        if _hides(name, value):
            return f"{word[: len(word) - len(value)]}{REMOVED}"
        name, equals, value = value.partition("=")
    return without_secrets(word)


def _hides(name: str, value: str) -> bool:
    """Whether a value of an option is a secret: the numbers of tokens and keys are none."""
    if re.search(_STRONG_NAME, name, re.IGNORECASE):
        return True
    return is_secret_name(name) and not re.fullmatch(_NUMBER, value)


# ------------------------------------------------------------------ what is known to be harmless

_PLAIN: Final = (
    r"[+-]?[\d.,:xeE+-]{1,16}[KMGTBkmgtb]?|true|false|yes|no|on|off|none|auto|nccl|gloo|mpi|ucc|"
    r"cuda|cpu|c10d|static|spawn|fork|forkserver|(?:bf|fp|float|bfloat)\d{1,2}|info|warn|debug|trace"
)
"""Values that tell nothing of anybody, whatever the option is called."""

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
    """Each word of a command line as what is known of it, and the rest of which nobody knows.

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
