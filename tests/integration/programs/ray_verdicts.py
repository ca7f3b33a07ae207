"""Verdicts of `unhang diagnose --engine ray` beside those without, of many PATHs in one process.

    ray_verdicts.py ADDRESS MARK PATH…

A share is two files. Where MARK names a file that is not there, the first task that has read its
share makes that file, and its worker is killed before it can answer.
"""

import io
import os
import signal
import sys
from contextlib import contextmanager, redirect_stdout

import ray

from unhang.cli.main import main
from unhang.cli.shared import reading_progress as progress
from unhang.ingest import ray as engine
from unhang.ingest.tasks import reduced_share

address, mark, *paths = sys.argv[1:]
engine.SHARE_FILES = 2
told = []


def dies_once(files, rank_pattern, *, all_times):
    data = reduced_share(files, rank_pattern, all_times=all_times)
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        os.kill(os.getpid(), signal.SIGKILL)
    except FileExistsError:
        pass
    return data


@contextmanager
def noted(*_args, **_options):
    yield lambda *done: told.append(done)


def verdict(*words):
    page = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with redirect_stdout(page):
        code = main(["diagnose", *words, "--format", "json"])
    return code, page.buffer.getvalue()


if mark != "-":
    engine.reduced_share = dies_once
ray.init(address=address, log_to_driver=False, logging_level="ERROR")
ray.init = ray.shutdown = lambda *_args, **_options: None
for path in paths:
    plain = verdict(path.removeprefix("file://"))
    progress.reading_progress = noted
    through = verdict(path, "--engine", f"ray:{address}")
    print("same" if through == plain else "differs", path, flush=True)
    if through != plain:
        print(plain, through, file=sys.stderr)
print("progress", *(told[-1] if told else ()))
