"""The keys that ranks of a rehearsal share, and who waits for which."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any

from unhang.rehearse.matching.talking import Foreign, Message


class SharedKeys:
    """What torch's stores hold, by store and key."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self._waiting: dict[int, tuple[list[str], bool]] = {}

    def ask(self, waiter: int, message: Message) -> Foreign:
        """The answer to a rank; None where it has to wait for a key."""
        name, do = f"{message['name']}/", message["do"]
        keys = [name + key for key in message.get("keys", [message.get("key", "")])]
        if do in ("get", "wait"):
            self._waiting[waiter] = (keys, do == "get")
            return self._answer(waiter)
        if do == "check":
            return all(key in self.held for key in keys)
        if do == "count":
            return sum(key.startswith(name) for key in self.held)
        return self._changed(do, keys[0], message)

    def _changed(self, do: str, key: str, message: Message) -> Foreign:
        value = b64decode(message.get("value", ""))
        if do == "delete":
            return self.held.pop(key, None) is not None
        if do == "add":
            total = int(self.held.get(key, b"0")) + int(message["amount"])
            self.held[key] = str(total).encode()
            return total
        if do == "append":
            self.held[key] = self.held.get(key, b"") + value
            return True
        if do == "compare":
            expected = b64decode(message["expected"])
            if self.held.get(key, expected if not expected else None) == expected:
                self.held[key] = value
            return b64encode(self.held.get(key, expected)).decode()
        self.held[key] = value
        return True

    def due(self) -> Iterator[tuple[int, Any]]:
        """Who has waited for what is there now."""
        for waiter in list(self._waiting):
            answer = self._answer(waiter)
            if answer is not None:
                yield waiter, answer

    def awaited(self, waiter: int) -> str:
        """The first key that is missing."""
        keys, _ = self._waiting[waiter]
        return next((key for key in keys if key not in self.held), "").partition("/")[2]

    def _answer(self, waiter: int) -> Foreign:
        keys, reads = self._waiting[waiter]
        if any(key not in self.held for key in keys):
            return None
        del self._waiting[waiter]
        return b64encode(self.held[keys[0]]).decode() if reads else True
