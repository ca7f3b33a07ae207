"""Who may ask the server: a client with the token, on this machine, from one of its own pages.

Every request needs the token, as a cookie or as "Authorization: Bearer". The name in Host must be
the loopback's, so that a foreign page cannot reach us by a name that it lets point here; a request
that says where it comes from (Origin) must come from us. Answers may run nothing and load nothing
but what they name themselves.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import urlsplit

COOKIE: Final = "unhang_token"
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_READING: Final = frozenset({"GET", "HEAD"})
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),  # with "no-referrer" forms would come from nowhere
    (b"cache-control", b"no-store"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_POLICY: Final = b"frame-ancestors 'none'; base-uri 'none'; object-src 'none'"

Scope = dict[str, Any]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[Scope, Any, Send], Awaitable[None]]


class Door:
    """An ASGI application around another one."""

    def __init__(self, app: App, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:  # noqa: ANN401 - ASGI
        """Let a request through, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def answer(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                given = [*message.get("headers", []), *_HEADERS]
                if not any(name == b"content-security-policy" for name, _ in given):
                    given.append((b"content-security-policy", _POLICY))
                message = {**message, "headers": given}
            await send(message)

        if why := self._refusal(scope):
            await _refuse(answer, why)
            return
        await self._app(scope, receive, answer)

    def _refusal(self, scope: Scope) -> str:
        """Why a request is refused; "" if it is not."""
        headers = {
            name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]
        }
        host = headers.get("host", "")
        if _named(f"//{host}")[0] not in _LOOPBACK:
            return "this name is not the server's"
        origin = headers.get("origin", "")
        if origin and _named(origin)[1] != host:
            return "requests from other pages are refused"
        if scope["method"] not in _READING and not (origin or "authorization" in headers):
            return "a request for work must name its origin"
        if scope["path"] == "/enter":
            return ""  # it compares the token itself
        given = headers.get("authorization", "").removeprefix("Bearer ") or _cookie(headers)
        if not self.knows(given):
            return "the token is missing: open the address that unhang serve printed"
        return ""

    def knows(self, token: str) -> bool:
        """Whether this is the token, in a time that tells nothing."""
        return hmac.compare_digest(token.encode("utf-8", "replace"), self._token.encode())


def _named(url: str) -> tuple[str | None, str]:
    """The host of a URL, alone and as it stands; of anything else, none."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return None, ""
    return host, parts.netloc


def _cookie(headers: dict[str, str]) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""


async def _refuse(send: Send, why: str) -> None:
    body = f"refused: {why}\n".encode()
    head = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 403, "headers": head})
    await send({"type": "http.response.body", "body": body})
