"""Which key of a store a process waits for, and which it has set last.

Programs use torch's stores as locks and meeting points. Nothing of torch's records that, and no
stack shows the key: ranks that wait for one that nothing sets stand in C++ for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any, Final

from unhang.record.calls import wrap
from unhang.record.calls.ring import Foreign

_WAITING: Final = ("get", "wait")
_SETTING: Final = ("set", "add")

_MOST: Final = 64

_waiting: dict[int, str] = {}
"""By thread."""


def install(store_class: type) -> None:
    """Wrap the methods of torch's `Store` through which Python waits and sets."""
    for methods, wrapper in ((_WAITING, _waits), (_SETTING, _sets)):
        for method in methods:
            original = store_class.__dict__.get(method)
            if original is not None:
                setattr(store_class, method, wrap.named(wrapper(original), method, original))


def _waits(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Foreign, *args: Foreign, **kwargs: Foreign) -> Foreign:
        _note(_key(args, kwargs))
        try:
            return original(self, *args, **kwargs)
        finally:
            _note("")

    return wrapper


def _sets(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Foreign, *args: Foreign, **kwargs: Foreign) -> Foreign:
        result = original(self, *args, **kwargs)
        recorder = wrap.current()
        if recorder is not None:
            recorder.beat.has_set(_key(args, kwargs))
        return result

    return wrapper


def _key(args: tuple[Foreign, ...], kwargs: dict[str, Foreign]) -> str:
    """The key of a call; several with commas."""
    given = args[0] if args else kwargs.get("key", kwargs.get("keys", ""))
    keys = given if isinstance(given, list | tuple) else [given]
    return ", ".join(key for key in keys[:_MOST] if isinstance(key, str))


def _note(key: str) -> None:
    """Keep what a thread waits for; where several do, one of them."""
    recorder = wrap.current()
    if recorder is None:
        return
    if key:
        _waiting[get_ident()] = key
    else:
        _waiting.pop(get_ident(), None)
    recorder.beat.awaits(next(iter(_waiting.copy().values()), ""))
