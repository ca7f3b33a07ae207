"""The settings of torch's recorder: two names each, and from which torch on the older can go.

Read in the released wheels 2.13.0, 2.14.1 and 2.15.0, and seen on their jobs. An older name that
torch reads after the newer one makes it print, in every process of a job, that it is deprecated.
One table for all who set, take back or judge these variables; so it needs the standard library
only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from typing import Final, NamedTuple

OLDER_NAMES: Final = "UNHANG_OLDER_NAMES"
"""Where `unhang run` says which older names it has set: those alone may be taken back."""


class RecorderSetting(NamedTuple):
    """One setting under both of its names.

    Attributes:
        since: The first torch, as (major, minor), that does the same without the older name.
    """

    newer: str
    older: str
    since: tuple[int, int]


BUFFER_SIZE: Final = RecorderSetting(
    "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE", (2, 13)
)
"""The dump pipe of 2.9 to 2.11 reads the older name alone; that of 2.13 is on without either."""
TEMP_FILE: Final = RecorderSetting(
    "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", (2, 13)
)
CPP_STACK: Final = RecorderSetting("TORCH_FR_CPP_STACK", "TORCH_NCCL_TRACE_CPP_STACK", (2, 13))
ON_TIMEOUT: Final = RecorderSetting(
    "TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT", (2, 15)
)
"""2.15 reads the newer name in its hooks; NCCL's older class the older one, and is on without."""
WAIT_TIMEOUT: Final = RecorderSetting(
    "TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", (2, 15)
)
SETTINGS: Final = (BUFFER_SIZE, TEMP_FILE, ON_TIMEOUT, CPP_STACK, WAIT_TIMEOUT)


def release_of(version: str) -> tuple[int, int] | None:
    """The release of a torch version ("2.13.0+cpu"); None where it tells none."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


def can_go(version: str) -> dict[str, str]:
    """The older names that a torch does without, each with its newer one; none for no version."""
    release = release_of(version)
    return {each.older: each.newer for each in SETTINGS if release and release >= each.since}


def settle(environ: MutableMapping[str, str], version: str) -> None:
    """Leave those of our variables that this torch needs, once it is known which torch it is.

    A launcher may have another torch than its ranks: what it took back is set again where needed.

    Args:
        environ: The environment, which is changed. What the user has set stays as it is.
        version: Of torch, as it tells it; nothing is changed where it tells none.
    """
    if release_of(version) is None:
        return
    ours, without = environ.get(OLDER_NAMES, "").split(","), can_go(version)
    for newer, older, _ in SETTINGS:
        if older in ours and newer in environ:
            _settle_one(environ, newer, older, goes=older in without)


def _settle_one(environ: MutableMapping[str, str], newer: str, older: str, *, goes: bool) -> None:
    if not goes:
        environ.setdefault(older, environ[newer])
    elif environ.get(older) == environ[newer]:
        del environ[older]


def warned_of(settings: Mapping[str, str], version: str) -> dict[str, str]:
    """Older names that are set and that this torch calls deprecated, each with its newer one."""
    return {older: newer for older, newer in can_go(version).items() if older in settings}
