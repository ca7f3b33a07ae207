"""Takes reports of many jobs, and answers launchers: the addresses under /fleet.

Each report is on disk before it is acknowledged. What comes is checked by its shape and bounded.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from unhang.context.fleet import FleetStore, Kept
from unhang.report import to_json
from unhang.reports.json import sayable_json

STORE: Final = "fleet.sqlite3"
_MOST_REPORT: Final = 16 << 20
_PAGE: Final = 200
_MOST_BUDGET: Final = 1_000


def fleet_routes(folder: Path) -> list[Route]:
    """The addresses, over the store in a folder.

    Raises:
        sqlite3.Error: There is no place for the store.
    """
    desk = _Reception(FleetStore(folder / STORE))
    return [
        Route("/fleet", desk.take, methods=["POST"]),
        Route("/fleet", desk.list, methods=["GET"]),
        Route("/fleet/answer", desk.answer),
        Route("/fleet/report/{key}", desk.report),
    ]


class _Reception:
    """Answers requests about one store."""

    def __init__(self, store: FleetStore) -> None:
        self._store = store

    async def take(self, request: Request) -> Response:
        """Keep a report: 201 once it is on disk, 200 where it was there before."""
        data = await _whole(request.stream())
        if data is None:
            return _refused(f"a report has at most {_MOST_REPORT >> 20} MiB", 413)
        try:
            key, is_new = await run_in_threadpool(self._store.keep, data)
        except ValueError as error:
            return _refused(f"this is no report: {error}", 400)
        except sqlite3.Error as error:
            return _refused(f"it could not be kept: {error}", 503)
        return JSONResponse({"key": key, "new": is_new}, 201 if is_new else 200)

    async def list(self, request: Request) -> Response:
        """The newest reports; of one job with ?job=."""
        job = request.query_params.get("job", "")
        kept = await run_in_threadpool(self._store.newest, _PAGE, job)
        count = await run_in_threadpool(self._store.count)
        return _said({"reports": count, "newest": [_row(each) for each in kept]})

    async def answer(self, request: Request) -> Response:
        """Whether to start a job again: ?job=, and ?budget=."""
        job, told = (request.query_params.get(name, "") for name in ("job", "budget"))
        if not job:
            return _refused("name a job: /fleet/answer?job=ID", 400)
        budget = int(told) if told.isascii() and told.isdigit() else 0
        if told and not 0 < budget <= _MOST_BUDGET:
            return _refused(f"a budget is a number from 1 to {_MOST_BUDGET}", 400)
        return _said(to_json(await run_in_threadpool(self._store.answer, job, budget)))

    async def report(self, request: Request) -> Response:
        """A report as it came."""
        key = request.path_params["key"]
        data = await run_in_threadpool(self._store.report, key)
        if data is None:
            return _refused("there is no such report", 404)
        return Response(data, media_type="application/json")


def _row(kept: Kept) -> dict[str, object]:
    past = kept.past
    return {
        "key": kept.key,
        "time_s": past.time_s,
        "job": past.job_id,
        "attempt": past.attempt,
        "status": past.status,
        "code": past.code,
        "summary": past.summary,
        "culprits": past.culprits,
        "culprit_hosts": past.culprit_hosts,
        "action": kept.action,
    }


async def _whole(body: AsyncIterator[bytes]) -> bytes | None:
    data = bytearray()
    async for chunk in body:
        data += chunk
        if len(data) > _MOST_REPORT:
            return None
    return bytes(data)


def _said(value: object) -> Response:
    return JSONResponse(sayable_json(value))


def _refused(why: str, status: int) -> Response:
    return JSONResponse({"error": why}, status)
