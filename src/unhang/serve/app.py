"""The server: cases, the page of each, its JSON, SQL over it, a comparison, history, metrics.

Nothing is kept but what was read last. GET changes nothing; SQL is a POST, runs without a way out
of its tables (`unhang.tables.query`), for some seconds, one at a time. So is a paste (`pasting`).
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from unhang._version import __version__
from unhang.case import Case
from unhang.casedir.place import place_in
from unhang.context.around import with_surroundings
from unhang.context.recalled import Past
from unhang.context.tallies import history_of
from unhang.errors import NoEvidenceError, UnhangError
from unhang.incoming import value_of
from unhang.isolated import python_command
from unhang.report import Report, to_json
from unhang.reports.json import sayable_json
from unhang.run.watching.now import Looker
from unhang.serve.caselist import CaseQuery
from unhang.serve.console import console_page, csv_of
from unhang.serve.door import COOKIE, Door
from unhang.serve.pages import (
    comparison_page,
    history_page,
    list_page,
    live_page,
    live_policy,
    metrics,
    paste_page,
    policy,
    refusal_page,
    saved_page,
    with_ways,
)
from unhang.serve.past import Verdicts, changed_ns, past_at
from unhang.serve.pasting import TOO_LONG, judged, text_of

_SQL_S = 10.0
_MOST_ROWS = 1000
_MOST_BODY = 100_000
_KEPT = 4
_LOOK_S = 1.0
_RUN_S = 120.0
_MOST_SAID = 200_000


def make_app(
    paths: Sequence[Path],
    token: str,
    job: str = "",
    more: Sequence[Route] = (),
    is_ending: Callable[[], bool] = lambda: False,
) -> Door:
    """The application for these cases, or directories of cases, and more, behind its door.

    Args:
        paths: Cases, or directories of cases.
        token: What opens the door.
        job: The job of the live page; "" for all.
        more: Further addresses.
        is_ending: Whether the server is to end: a page that watches a job would never let it.
    """
    desk = _Desk(tuple(paths), job, is_ending)
    routes = [
        Route("/enter", _enter_with(token)),
        Route("/", desk.cases),
        Route("/compare", desk.compare),
        Route("/history", desk.history),
        Route("/metrics", desk.metrics),
        Route("/live", desk.live),
        Route("/live/events", desk.events),
        Route("/live/dump", desk.dump, methods=["POST"]),
        Route("/live/stacks", desk.stacks, methods=["POST"]),
        Route("/paste", desk.paste, methods=["GET", "POST"]),
        Route("/case/{key}/", desk.page),
        Route("/case/{key}/report.json", desk.report),
        Route("/case/{key}/sql", desk.sql, methods=["GET", "POST"]),
        *more,
    ]
    app = Starlette(routes=routes, exception_handlers={404: _no_such_page})
    return Door(app, token)  # type: ignore[arg-type]


def _enter_with(token: str):  # type: ignore[no-untyped-def] # noqa: ANN202 - an endpoint
    """The endpoint that takes the token out of the address and into a cookie."""

    async def enter(request: Request) -> Response:
        door = Door(_nothing, token)
        if not door.knows(request.query_params.get("token", "")):
            return PlainTextResponse("refused: wrong token\n", status_code=403)
        live = request.query_params.get("to") == "live"
        answer = RedirectResponse("/live" if live else "/", status_code=303)
        answer.set_cookie(COOKIE, token, httponly=True, samesite="strict")
        return answer

    return enter


async def _nothing(*_: object) -> None:
    """An application that is never asked."""


@lru_cache(maxsize=_KEPT)
def _judged(path: Path, changed: int) -> tuple[Case, Report]:
    """Read and judge a case; again only when its directory has changed."""
    del changed
    from dataclasses import replace

    from unhang.analysis import diagnose
    from unhang.ingest import load
    from unhang.reports import with_steps

    case = load([path])
    report = replace(diagnose(case), tool_version=__version__)
    return case, with_surroundings(with_steps(report, case, place_in(path)), path)


class _Desk:
    """Answers requests about the cases under some paths."""

    def __init__(self, paths: Sequence[Path], job: str, is_ending: Callable[[], bool]) -> None:
        self._job = job
        self._is_ending = is_ending
        self._asking = asyncio.Lock()
        self._verdicts = Verdicts(paths)
        Thread(target=self._verdicts.read_ahead, daemon=True).start()
        self._judged: dict[Path, int] = {}

    def _pasts(self) -> tuple[dict[str, Past], dict[Path, str]]:
        pasts: dict[str, Past] = {}
        failed: dict[Path, str] = {}
        for key, path in self._verdicts.paths().items():
            found = past_at(path, changed_ns(path))
            if isinstance(found, Past):
                pasts[key] = found
            else:
                failed[path] = found
        return pasts, failed

    def _known(self) -> tuple[dict[str, Past], dict[Path, str], dict[str, Path]]:
        """Cases with a verdict, those that cannot be read, and those that are not judged yet."""
        known: dict[str, Past] = {}
        failed: dict[Path, str] = {}
        waiting: dict[str, Path] = {}
        for key, path in self._verdicts.paths().items():
            changed = changed_ns(path)
            if not ((path / "report.json").is_file() or self._judged.get(path) == changed):
                waiting[key] = path
            elif isinstance(found := past_at(path, changed), Past):
                known[key] = found
            else:
                failed[path] = found
        return known, failed, waiting

    def _coming(self, waiting: Mapping[str, Path]) -> Iterator[tuple[str, Path, Past | str]]:
        for key, path in waiting.items():
            changed = changed_ns(path)
            found = past_at(path, changed)
            self._judged[path] = changed
            yield key, path, found

    def _of(self, request: Request) -> tuple[Case, Report]:
        path = self._verdicts.paths().get(request.path_params["key"])
        if path is None:
            raise LookupError
        return _judged(path, changed_ns(path))

    async def cases(self, request: Request) -> Response:
        """The list: what is known at once, and then each case that is judged only now."""
        asked = CaseQuery.of(request.query_params)
        known, failed, waiting = await run_in_threadpool(self._known)
        page = list_page(known, failed, asked, self._coming(waiting))
        return StreamingResponse(
            page, media_type="text/html", headers={"content-security-policy": policy()}
        )

    async def history(self, request: Request) -> Response:
        """What all cases have in common."""
        del request
        pasts, _ = await run_in_threadpool(self._pasts)
        return _own(history_page(history_of(list(pasts.values()))))

    async def metrics(self, request: Request) -> Response:
        """For Prometheus."""
        del request
        pasts, failed = await run_in_threadpool(self._pasts)
        kind = "text/plain; version=0.0.4; charset=utf-8"
        jobs = await run_in_threadpool(Looker(self._job).look)
        return Response(metrics(pasts.values(), len(failed), jobs), media_type=kind)

    async def live(self, request: Request) -> Response:
        """What runs on this node."""
        del request
        return HTMLResponse(live_page(), headers={"content-security-policy": live_policy()})

    async def events(self, request: Request) -> Response:
        """Looks at the ranks, and verdicts as they come, as server-sent events."""
        return StreamingResponse(self._told(request), media_type="text/event-stream")

    async def _told(self, request: Request) -> AsyncIterator[str]:
        looks, told = Looker(self._job), dict[str, int]()
        while not (self._is_ending() or await request.is_disconnected()):
            jobs = await run_in_threadpool(looks.look)
            yield _event("look", to_json(jobs))
            for key, past in await run_in_threadpool(self._verdicts.since, told, jobs):
                line = {"key": key, "status": past.status, "summary": past.summary}
                yield _event("verdict", line)
            await asyncio.sleep(_LOOK_S)

    async def dump(self, request: Request) -> Response:
        """Have the armed ranks of this node write dumps, as `unhang dump` does."""
        del request
        return PlainTextResponse(await self._run(["dump"]))

    async def stacks(self, request: Request) -> Response:
        """Where the ranks of this node stand, as `unhang stacks` shows it."""
        del request
        return PlainTextResponse(await self._run(["stacks", "--width", "120", "--no-color"]))

    async def _run(self, words: Sequence[str]) -> str:
        command = python_command("unhang", *words)
        command += ["--job", self._job] if self._job else []
        async with self._asking:
            return await run_in_threadpool(_ran, command)

    async def paste(self, request: Request) -> Response:
        """A text, and what it comes to: GET shows the form, POST judges."""
        if request.method != "POST":
            return _own(paste_page(""))
        text = await text_of(request.stream())
        if text is None:
            return _own(paste_page(TOO_LONG), 413)
        async with self._asking:
            page, why = await run_in_threadpool(judged, text)
        return HTMLResponse(page) if page else _own(paste_page(why), 400)

    async def compare(self, request: Request) -> Response:
        """Two cases side by side."""
        pasts, _ = await run_in_threadpool(self._pasts)
        keys = [request.query_params.get(name, "") for name in ("a", "b")]
        if not all(key in pasts for key in keys):
            return _own(refusal_page("Choose two cases, a and b."), 400)
        first, second = ((key, pasts[key]) for key in keys)
        return _own(comparison_page(first, second))

    async def page(self, request: Request) -> Response:
        """The page of a case, with the way back; what it may do stands in it."""
        try:
            page = await run_in_threadpool(self._draw, request, "html")
            return HTMLResponse(with_ways(page, request.path_params["key"]))
        except NoEvidenceError as error:
            return await run_in_threadpool(self._saved_alone, request, error, "html")
        except (LookupError, UnhangError) as error:
            return _not_found(error)

    async def report(self, request: Request) -> Response:
        """The report of a case."""
        try:
            text = await run_in_threadpool(self._draw, request, "json")
        except NoEvidenceError as error:
            return await run_in_threadpool(self._saved_alone, request, error, "json")
        except (LookupError, UnhangError) as error:
            return _not_found(error)
        return Response(text, media_type="application/json")

    def _saved_alone(self, request: Request, error: NoEvidenceError, form: str) -> Response:
        """What the saved report of a case says whose evidence is not here any more."""
        path = self._verdicts.paths()[request.path_params["key"]]
        past = past_at(path, changed_ns(path))
        if not isinstance(past, Past):
            return _not_found(error)
        if form == "html":
            return _own(saved_page(past))
        saved = value_of((path / "report.json").read_bytes())
        return Response(json.dumps(sayable_json(saved)), media_type="application/json")

    def _draw(self, request: Request, form: str) -> str:
        from unhang import reports
        from unhang.analysis.picture import picture_of

        case, report = self._of(request)
        picture = picture_of(case, report) if form in reports.PICTURED else None
        return reports.render(form, report, case, None, picture)

    async def sql(self, request: Request) -> Response:
        """The console: GET shows it, POST asks."""
        key = request.path_params["key"]
        sql, is_csv = await _sql_of(request) if request.method == "POST" else ("", False)
        if key not in self._verdicts.paths():
            return _not_found(LookupError())
        if not sql.strip():
            asked = request.method == "POST"
            said = "The statement is empty or too long." if asked else ""
            return _own(console_page(key, "", (), (), said))
        async with self._asking:
            answer = await run_in_threadpool(self._ask, request, sql)
        if is_csv and answer[0]:
            return Response(csv_of(*answer), media_type="text/csv")
        return _own(console_page(key, sql, *answer))

    def _ask(
        self, request: Request, sql: str
    ) -> tuple[Sequence[str], Sequence[Sequence[object]], str]:
        from unhang import tables

        try:
            case, report = self._of(request)
            with (
                tables.written(case, report) as path,
                tables.asking(path, sql, _SQL_S) as found,
            ):
                rows = list(islice(found.rows, _MOST_ROWS + 1))
        except (LookupError, UnhangError) as error:
            return (), (), f"refused: {error}"
        cut = f"Only the first {_MOST_ROWS:,} rows are shown." if len(rows) > _MOST_ROWS else ""
        return found.names, rows[:_MOST_ROWS], cut


def _event(name: str, value: object) -> str:
    return f"event: {name}\ndata: {json.dumps(sayable_json(value))}\n\n"


def _ran(command: Sequence[str]) -> str:
    """Run one of our commands; what it says."""
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, text=True, errors="replace", timeout=_RUN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no answer: {error}"
    return (done.stdout + done.stderr)[:_MOST_SAID]


async def _sql_of(request: Request) -> tuple[str, bool]:
    """The statement in a form, and whether CSV is wanted; what is too long is no statement."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BODY:
            return "", False
    fields = parse_qs(body.decode("utf-8", "replace"))
    return fields.get("sql", [""])[0], fields.get("as", [""])[0] == "csv"


def _own(page: str, status: int = 200) -> Response:
    return HTMLResponse(page, status, headers={"content-security-policy": policy()})


async def _no_such_page(request: Request, error: Exception) -> Response:
    del request, error
    return _own(refusal_page("There is no such page."), 404)


def _not_found(error: Exception) -> Response:
    return _own(refusal_page(str(error) or "There is no such case."), 404)
