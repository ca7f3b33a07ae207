"""A store that all ranks of a rehearsal share, whichever the script asks for.

Its keys are real, and the referee knows who waits for which: a key that is never set shows as what
the rank waits for.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from base64 import b64decode, b64encode
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from unhang.rehearse.inside.works import Desk
from unhang.rehearse.matching.talking import Foreign


def _packed(value: Foreign) -> str:
    data = value.encode() if isinstance(value, str) else bytes(value)
    return b64encode(data).decode()


class RehearsedStore(dist.Store):  # type: ignore[misc] # torch is not typed
    """torch's store, kept by the referee.

    Args:
        desk: The rank's.
        name: Which of several stores: what the script gave as address.
    """

    def __init__(self, desk: Desk, name: str = "") -> None:
        super().__init__()
        self.desk, self.name = desk, name
        desk.stores.append(self)  # C++ keeps half of it only
        self.period = timedelta(minutes=30)

    def _ask(self, kind: str, **fields: Foreign) -> Foreign:
        return self.desk.client.ask("store", do=kind, name=self.name, **fields)["value"]

    def set(self, key: str, value: Foreign) -> None:
        """Set a key."""
        self._ask("set", key=key, value=_packed(value))

    def get(self, key: str) -> bytes:
        """Wait for a key and read it."""
        place = self.desk.place()
        return b64decode(self._ask("get", key=key, **place))

    def add(self, key: str, value: int) -> int:
        """Add to a counter."""
        return int(self._ask("add", key=key, amount=value, **self.desk.place()))

    def check(self, keys: list[str]) -> bool:
        """Whether all of them are there."""
        return bool(self._ask("check", keys=keys, **self.desk.place()))

    def wait(self, keys: list[str], timeout: Foreign = None) -> None:
        """Wait for keys; a rehearsal has no time-outs."""
        del timeout
        self._ask("wait", keys=keys, **self.desk.place())

    def compare_set(self, key: str, expected: Foreign, desired: Foreign) -> bytes:
        """Set a key where it is as expected."""
        return b64decode(
            self._ask("compare", key=key, expected=_packed(expected), value=_packed(desired))
        )

    def delete_key(self, key: str) -> bool:
        """Remove a key."""
        return bool(self._ask("delete", key=key))

    def num_keys(self) -> int:
        """How many there are."""
        return int(self._ask("count"))

    def append(self, key: str, value: Foreign) -> None:
        """Add bytes to what a key holds."""
        self._ask("append", key=key, value=_packed(value))

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """Wait for keys and read them."""
        return [self.get(key) for key in keys]

    def multi_set(self, keys: list[str], values: list[Any]) -> None:
        """Set several."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        """Append and its like are there."""
        return True

    def set_timeout(self, timeout: timedelta) -> None:
        """Kept; a rehearsal has no time-outs."""
        self.period = timeout

    @property
    def timeout(self) -> timedelta:
        """What was set."""
        return self.period

    deleteKey, getNumKeys = delete_key, num_keys  # noqa: N815 - as C++ asks for them
    host, port = "localhost", 0

    def clone(self) -> RehearsedStore:
        """The same store."""
        return self
