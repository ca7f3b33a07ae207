"""Which worker a process waits for in torch's RPC: while it sets RPC up, asks, fetches, shuts down.

No recorder of torch's sees RPC, and no stack shows the name of the worker that does not answer.
Calls take a network's round trip each, so a lock and a dictionary cost nothing here.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, get_ident
from typing import Any, Final, NamedTuple

from unhang.record.calls import wrap
from unhang.record.calls.ring import Foreign

_MOST: Final = 8
"""Names of one process that its heartbeat has room for."""


class RpcWait(NamedTuple):
    """A wait: in which call, for which worker ("" for all), and which function that is to run."""

    op: str
    worker: str = ""
    function: str = ""


class _Seen:
    """What this process has asked; emptied in a forked child."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.waiting: dict[int, list[RpcWait]] = {}
        self.begun = self.ended = 0
        self.name, self.threads = "", 0
        self.futures: dict[int, tuple[weakref.ref[Any], RpcWait]] = {}


_seen = _Seen()


def forget() -> None:
    """The process has forked: its parent's waits are not its own."""
    global _seen  # noqa: PLW0603 - one state a process
    _seen = _Seen()


def counts() -> tuple[int, int]:
    """How many waits have begun, and how many have ended."""
    return _seen.begun, _seen.ended


def named(name: str, threads: int) -> None:
    """This process is a worker of that name, with so many threads that serve others."""
    _seen.name, _seen.threads = name, threads
    _tell()


def install(module: Foreign) -> None:
    """Wrap what waits in `torch.distributed.rpc`; what this torch lacks is left out."""
    api = getattr(module, "api", None)
    if api is None or hasattr(getattr(api, "rpc_sync", None), "__unhang__"):
        return
    for name, wrapper in (("rpc_sync", _sync), ("rpc_async", _async), ("shutdown", _shutdown)):
        original = getattr(api, name, None)
        if original is not None:
            _replace((api, module), name, original, wrapper(original))
    rref = getattr(api, "RRef", None)
    if rref is not None and "to_here" in vars(rref):
        rref.to_here = _kept(_to_here(rref.to_here), rref.to_here)
    future = getattr(sys.modules.get("torch._C"), "Future", None)
    if future is not None and "wait" in vars(future):
        future.wait = _kept(_future(future.wait), future.wait)
    futures = sys.modules.get("torch.futures")
    if futures is not None and (wait_all := getattr(futures, "wait_all", None)) is not None:
        _replace((futures,), "wait_all", wait_all, _wait_all(wait_all))


@contextmanager
def asked(what: RpcWait) -> Iterator[None]:
    """This thread waits, until the block ends."""
    seen = _seen
    with seen.lock:
        seen.begun += 1
        seen.waiting.setdefault(get_ident(), []).append(what)
    _tell()
    try:
        yield
    finally:
        with seen.lock:
            seen.ended += 1
            mine = seen.waiting[get_ident()]
            mine.pop()
            if not mine:
                del seen.waiting[get_ident()]
        _tell()


def _tell() -> None:
    """Keep who is waited for: of several threads all workers, and the oldest thread's function."""
    recorder = wrap.current()
    if recorder is None:
        return
    with _seen.lock:
        now = sorted((e[-1] for e in _seen.waiting.values()), key=lambda each: not each.worker)
    names = [*dict.fromkeys(each.worker for each in now if each.worker)][:_MOST]
    first = now[0] if now else RpcWait("")
    recorder.beat.asks(first.op, ", ".join(names), first.function, (_seen.name, _seen.threads))


def _sync(original: Callable[..., Any]) -> Callable[..., Any]:
    def rpc_sync(to: Foreign, func: Foreign, *args: Foreign, **kwargs: Foreign) -> Foreign:
        with asked(RpcWait("rpc_sync", _name_of(to), _function(func))):
            return original(to, func, *args, **kwargs)

    return rpc_sync


def _async(original: Callable[..., Any]) -> Callable[..., Any]:
    def rpc_async(to: Foreign, func: Foreign, *args: Foreign, **kwargs: Foreign) -> Foreign:
        future = original(to, func, *args, **kwargs)
        _follow(future, RpcWait("rpc_async", _name_of(to), _function(func)))
        return future

    return rpc_async


def _shutdown(original: Callable[..., Any]) -> Callable[..., Any]:
    def shutdown(*args: Foreign, **kwargs: Foreign) -> Foreign:
        with asked(RpcWait("rpc.shutdown")):
            return original(*args, **kwargs)

    return shutdown


def _to_here(original: Callable[..., Any]) -> Callable[..., Any]:
    def to_here(self: Foreign, *args: Foreign, **kwargs: Foreign) -> Foreign:
        try:
            owner = "" if self.is_owner() else str(self.owner_name())
        except (RuntimeError, AttributeError, TypeError):
            owner = ""
        with asked(RpcWait("to_here", owner)):
            return original(self, *args, **kwargs)

    return to_here


def _future(original: Callable[..., Any]) -> Callable[..., Any]:
    def wait(self: Foreign, *args: Foreign, **kwargs: Foreign) -> Foreign:
        found = _seen.futures.get(id(self)) if _seen.futures else None
        if found is None or found[0]() is not self:
            return original(self, *args, **kwargs)
        with asked(found[1]):
            return original(self, *args, **kwargs)

    return wait


def _wait_all(original: Callable[..., Any]) -> Callable[..., Any]:
    def wait_all(futures: Foreign) -> Foreign:
        known = [found for each in futures if (found := _pending(each)) is not None]
        if not known:
            return original(futures)
        names = ", ".join(dict.fromkeys(each.worker for each in known))
        with asked(RpcWait("wait_all", names, known[0].function)):
            return original(futures)

    return wait_all


def _pending(future: Foreign) -> RpcWait | None:
    """What a future of ours was asked for, unless the answer is there."""
    kept, what = _seen.futures.get(id(future), (None, None))
    known = kept() if kept is not None else None
    return None if known is None or known is not future or known.done() else what


def _follow(future: Foreign, what: RpcWait) -> None:
    key, seen = id(future), _seen
    try:
        reference = weakref.ref(future, lambda _: seen.futures.pop(key, None))
    except TypeError:
        return
    seen.futures[key] = reference, what


def _name_of(to: Foreign) -> str:
    """The worker that a call names: by its name, or by what torch knows of it."""
    if isinstance(to, str):
        return to
    name = getattr(to, "name", None)
    if isinstance(name, str):
        return name
    try:
        agent = sys.modules["torch.distributed.rpc.api"]._get_current_rpc_agent()
        return str(agent.get_worker_info(to).name)
    except (KeyError, RuntimeError, AttributeError, TypeError):
        return ""


def _function(func: Foreign) -> str:
    return str(getattr(func, "__qualname__", getattr(func, "__name__", "")))


def _replace(
    owners: tuple[Foreign, ...], name: str, original: Foreign, new: Callable[..., Any]
) -> None:
    kept = _kept(new, original)
    for owner in owners:
        if getattr(owner, name, None) is original:
            setattr(owner, name, kept)


def _kept(wrapper: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """The wrapper with the name and the documentation of what it wraps."""
    with_names = functools.wraps(original)(wrapper)
    with_names.__unhang__ = True  # type: ignore[attr-defined]
    return wrap.not_compiled(with_names)
