"""Where the supervisors of one job meet, and with which token: as the user says, or the launcher.

They meet at the job's own rendezvous host, on a port near the job's. Without a token
nothing listens and nothing is reached for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from unhang.errors import UsageError

TOKEN: Final = "UNHANG_MEET_TOKEN"  # noqa: S105 - the name of the variable

LEAST_TOKEN: Final = 16
"""Of fewer characters a token can be guessed."""
_MOST_TOKEN: Final = 4096
_BESIDE: Final = 1000
"""Launchers take the ports next to theirs for a second job; so far on there is none of theirs."""
_PORTS: Final = range(1, 1 << 16)
_TORCHRUN_PORT: Final = "29500"


class Invitation(NamedTuple):
    """Where to meet, with what to prove that one belongs there, and for which job."""

    host: str
    port: int
    token: bytes
    job: str


def invitation_of(
    env: Mapping[str, str], command: Sequence[str], job: str, meet: str = "", token_file: str = ""
) -> Invitation | None:
    """Where the supervisors of this job meet; None where no token is given, or no place is known.

    Args:
        env: Of this process; the token may be in it.
        command: The job's, whose options name its rendezvous.
        job: Its id.
        meet: HOST:PORT as the user says, or "".
        token_file: A file with the token, or "".

    Raises:
        UsageError: The place is none, or the token cannot be used.
    """
    place = _place_of(meet) if meet else _beside_the_job(env, command)
    token = _token_of(token_file) if token_file else env.get(TOKEN, "").encode()
    if not token and meet:
        hint = f"give --meet-token FILE, or set {TOKEN}, the same on all nodes"
        raise UsageError("--meet needs a token", hint)
    if not token or place is None:
        return None
    if not LEAST_TOKEN <= len(token) <= _MOST_TOKEN:
        raise UsageError(
            f"the token of the meeting has {len(token)} characters",
            f"give {LEAST_TOKEN} or more, such as: openssl rand -hex 16",
        )
    return Invitation(*place, token, job)


def _token_of(path: str) -> bytes:
    from pathlib import Path

    from unhang.regular import open_regular

    try:
        with open_regular(Path(path)) as file:
            token = file.read(_MOST_TOKEN + 1).strip()
        is_open = Path(path).stat().st_mode & 0o077
    except OSError as error:
        raise UsageError(f"--meet-token {path}: {error.strerror}", "name a file") from error
    if is_open:
        raise UsageError(f"others may read the token in {path}", f"chmod 600 {path}")
    return token


def _place_of(text: str) -> tuple[str, int]:
    place = _parted(text)
    if place is None:
        raise UsageError(f"--meet {text} is no HOST:PORT", "for example: --meet node01:30500")
    return place


def _parted(text: str) -> tuple[str, int] | None:
    """Host and port, of an IPv6 address in brackets too; None where it is neither."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    known = port.isascii() and port.isdigit() and len(port) < 6 and int(port) in _PORTS  # noqa: PLR2004 - digits of the largest
    return (host, int(port)) if host and known else None


def _beside_the_job(env: Mapping[str, str], command: Sequence[str]) -> tuple[str, int] | None:
    """A port near the job's rendezvous; None where it has one node, or nothing tells where."""

    def told(name: str) -> str:
        return told_torchrun(env, command, name)

    if told("nnodes") not in ("", "1", "1:1"):
        text = told("rdzv-endpoint")
        text = text or f"{told('master-addr')}:{told('master-port') or _TORCHRUN_PORT}"
    elif env.get("RANK") or env.get("SLURM_NNODES", "1") != "1":
        text = f"{env.get('MASTER_ADDR', '')}:{env.get('MASTER_PORT', '')}"
    else:
        return None
    place = _parted(text)
    return place and (place[0], _beside(place[1]))


def _beside(port: int) -> int:
    return port + _BESIDE if port + _BESIDE in _PORTS else port - _BESIDE


def told_torchrun(env: Mapping[str, str], command: Sequence[str], name: str) -> str:
    """What torchrun takes for an option ("nnodes"): of its command line, else of PET_NNODES."""
    return option_of(command, f"--{name}") or env.get(f"PET_{name.upper().replace('-', '_')}", "")


def option_of(command: Sequence[str], name: str) -> str:
    """Value of a launcher's option, in either spelling ("--a-b x", "--a_b=x"), or ""."""
    for number, word in enumerate(command):
        option, equals, value = word.partition("=")
        if option.replace("_", "-") == name:
            following = command[number + 1] if number + 1 < len(command) else ""
            return value if equals else following
    return ""
