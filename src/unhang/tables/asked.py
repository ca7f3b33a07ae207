"""The process that asks an engine: the SQL and the tables may be a stranger's, so it is bounded.

DuckDB keeps its own limit only for what it stores: strings of an expression are not in it, nor is
an expression interrupted. The address space is what bounds them. `unhang.tables.apart` starts this,
gives it the clock, and shows what comes.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from unhang.errors import InputError, UnhangError
from unhang.regular import open_regular
from unhang.tables.database import engine
from unhang.tables.query import ask, open_database, open_parquet
from unhang.tables.wire import OPENED, decoded, framed

_BESIDE: Final = 128 << 20
"""Address space for stacks of threads and what rows become, next to the engine's memory."""
_FLUSH = 64 << 10


def main(orders: BinaryIO, out: BinaryIO) -> int:
    """Open, ask, tell; returns an exit code.

    Args:
        orders: {"path", "parquet", "sql", "seconds", "memory"}, as msgpack; memory in bytes.
        out: For messages: `OPENED`; {"names", "types"}; a list a row; None at the end; or
            {"refused", "hint", "wrong_use"} instead of any.
    """
    order = decoded(orders.read())
    try:
        engine()
        _bound_address_space(order["memory"] + _BESIDE)
        path = Path(order["path"])
        opened = open_parquet(path) if order["parquet"] else open_database(path)
        out.write(framed(OPENED))
        out.flush()
        answer = ask(opened, order["sql"], order["seconds"])
        out.write(framed({"names": [*answer.names], "types": [*answer.types]}))
        waiting = bytearray()
        for row in answer.rows:
            waiting += framed([*row])
            if len(waiting) > _FLUSH:
                out.write(waiting)
                waiting.clear()
        out.write(waiting + framed(None))
    except UnhangError as error:
        wrong = not isinstance(error, InputError)
        out.write(framed({"refused": error.message, "hint": error.hint, "wrong_use": wrong}))
    except ValueError as error:
        out.write(framed({"refused": str(error), "hint": "Ask for less.", "wrong_use": True}))
    out.flush()
    return 0


def _bound_address_space(more: int) -> None:
    """Allow so many bytes more than this process has already, where the system can bound them."""
    try:
        import resource

        with open_regular("/proc/self/statm") as file:
            has = int(file.read().split()[0]) * resource.getpagesize()
    except (ImportError, OSError, ValueError):
        return
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    soft = has + more if hard == resource.RLIM_INFINITY else min(has + more, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.stdin.buffer, sys.stdout.buffer))
    except BrokenPipeError:
        sys.exit(0)
