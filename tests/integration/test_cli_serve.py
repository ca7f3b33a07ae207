"""The server as a user starts it: who is let in, what is refused, what it shows."""

from __future__ import annotations

import http.client
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parents[2]
NAMES = ("never-joined-armed", "crossed-order", "healthy")
ALONE: dict[str, object] = {
    "schema": "unhang.report/1",
    "status": "slow",
    "summary": "Rank 7 <came> last.",
}
ALONE |= {"incident": {"newest_ns": 10**9}}


@dataclass(frozen=True)
class Server:
    """A running server and how to ask it."""

    port: int
    token: str
    headers: dict[str, str] = field(default_factory=dict)

    def ask(
        self, path: str, *, method: str = "GET", body: str = "", **headers: str
    ) -> tuple[int, str, dict[str, str]]:
        """Send one request; the token is in it unless `authorization` says otherwise."""
        given = {"authorization": f"Bearer {self.token}", **headers}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, body or None, {k: v for k, v in given.items() if v})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text, {k.lower(): v for k, v in answer.getheaders()}

    def keys(self) -> list[str]:
        """The names of cases on the list."""
        page = self.ask("/")[1]
        return [part.split("/", 1)[0] for part in page.split('<a href="/case/')[1:]][::3]

    def sql(self, statement: str, **headers: str) -> tuple[int, str]:
        """Ask the first case in SQL."""
        body = f"sql={quote(statement)}"
        return self.ask(f"/case/{self.keys()[0]}/sql", method="POST", body=body, **headers)[:2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server over three captured hangs and one that is broken."""
    folder = tmp_path_factory.mktemp("cases")
    for name in NAMES:
        shutil.copytree(ROOT / "examples" / name, folder / name)
    (folder / "broken").mkdir()
    (folder / "broken" / "report.json").write_text("{")
    (folder / "report-alone").mkdir()
    (folder / "report-alone" / "report.json").write_text(json.dumps(ALONE))
    with serving(folder) as (started, process):
        yield started
        process.terminate()
        process.wait(30)


@contextmanager
def serving(folder: Path) -> Iterator[tuple[Server, subprocess.Popen[str]]]:
    """A server over a folder of cases."""
    command = [sys.executable, "-m", "unhang", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = urlsplit(process.stdout.readline().strip())
        try:
            yield Server(address.port or 0, parse_qs(address.query)["token"][0]), process
        finally:
            process.kill()


def test_cases_pages_and_reports_are_served(server: Server) -> None:
    """The list has each case with its verdict, and says what it cannot read."""
    status, page, headers = server.ask("/")
    assert status == 200
    assert "Rank 2 never called" in page
    assert "broken" in page
    assert headers["content-security-policy"].startswith("default-src 'none'")
    keys = server.keys()
    assert len(keys) == len(NAMES) + 1
    status, page, _ = server.ask(f"/case/{keys[0]}/")
    assert status == 200
    assert 'id="facts"' in page
    status, report, _ = server.ask(f"/case/{keys[0]}/report.json")
    assert '"unhang.report/1"' in report
    assert server.ask("/case/none/")[0] == 404
    assert server.ask(f"/compare?a={keys[0]}&b={keys[1]}")[0] == 200
    assert server.ask("/compare?a=x")[0] == 400
    assert server.ask("/history")[0] == 200


def test_a_report_whose_evidence_has_gone_is_shown(server: Server) -> None:
    """It is on the list, so it has a page, its JSON, and a reason why there are no tables."""
    page = server.ask("/")[1]
    key = (
        page.partition("Rank 7 &lt;came&gt;")[0].rpartition('<a href="/case/')[2].partition("/")[0]
    )
    status, page, headers = server.ask(f"/case/{key}/")
    assert status == 200
    assert "Rank 7 &lt;came&gt; last." in page
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert json.loads(server.ask(f"/case/{key}/report.json")[1]) == ALONE
    status, page, _ = server.ask(f"/case/{key}/sql", method="POST", body="sql=SELECT+1")
    assert status == 200
    assert "refused" in page


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": ""},
        {"authorization": "Bearer wrong"},
        {"authorization": "", "cookie": "unhang_token=wrong"},
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/metrics", "/live", "/live/events", "/enter?token=wrong"])
def test_strangers_are_refused(server: Server, path: str, headers: dict[str, str]) -> None:
    """Without the token, under another name, from another page: nothing is told."""
    status, text, _ = server.ask(path, **headers)
    assert status == 403
    assert "never called" not in text


def test_the_address_that_is_printed_opens_the_door(server: Server) -> None:
    """It sets a cookie that no script and no other site can use, and leaves the address bar."""
    status, _, headers = server.ask(f"/enter?token={server.token}", authorization="")
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert server.ask("/", authorization="", cookie=cookie.split(";", 1)[0])[0] == 200


def test_sql_reads(server: Server) -> None:
    """A statement gives a table."""
    status, page = server.sql("SELECT count(*) AS n_calls FROM calls")
    assert status == 200
    assert "n_calls" in page


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE x (a INT)",
        "COPY calls TO '/tmp/out.csv'",
        "FROM read_csv('/etc/passwd')",
        "INSTALL httpfs",
        "SELECT 1; SELECT 2",
        "SELECT count(*) FROM range(100000000000) a, range(1000) b",
    ],
)
def test_sql_does_nothing_else(server: Server, statement: str) -> None:
    """Writing, reading of files, endless work: refused, and the server lives."""
    status, page = server.sql(statement)
    assert status == 200
    assert "refused" in page
    assert server.ask("/")[0] == 200


def test_sql_is_not_asked_by_other_pages(server: Server) -> None:
    """A form of a foreign page is refused, and so is one that does not say whence it comes."""
    cookie = f"unhang_token={server.token}"
    assert server.sql("SELECT 1", origin="http://evil.example")[0] == 403
    assert server.sql("SELECT 1", authorization="", cookie=cookie)[0] == 403
    own = f"http://127.0.0.1:{server.port}"
    assert server.sql("SELECT 1", authorization="", cookie=cookie, origin=own)[0] == 200


STUCK = """[1,0]<stderr>:[2019-04-13 13:55:31.85: W x.cc:588] <b>op_0</b> [missing ranks: 1]
[1,0]<stderr>:[2019-04-13 13:56:31.86: W x.cc:588] op_1 [missing ranks: 1]
"""


def test_a_paste_is_judged(server: Server) -> None:
    """From the form, and as a body that is the text; nothing of it is run or kept."""
    assert 'action="/paste"' in server.ask("/paste")[1]
    for body in (f"text={quote(STUCK)}", STUCK):
        status, page, _ = server.ask("/paste", method="POST", body=body)
        assert status == 200
        assert "missing ranks: 1" in page
        assert "<b>op_0</b>" not in page
    assert "missing ranks" not in server.ask("/")[1]


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ("text=", 400, "There is no text."),
        ("\x01\x02\x03" * 2000, 400, "is not text"),
        ("x" * (4 << 20) + "xxxxxxxx", 413, "longer than 4 MiB"),
        ("text=" + "x" * (4 << 20) + "x", 413, "longer than 4 MiB"),
    ],
)
def test_what_is_no_paste_is_a_sentence(body: str, status: int, says: str, server: Server) -> None:
    """Nothing, bytes of something else, too much: the form again, and why."""
    told, page, _ = server.ask("/paste", method="POST", body=body)
    assert (told, says in page, 'name="text"' in page) == (status, True, True)


def test_a_paste_of_another_page_is_refused(server: Server) -> None:
    """As SQL is: the token alone does not suffice."""
    cookie = f"unhang_token={server.token}"
    for headers in (
        {"origin": "http://evil.example"},
        {"authorization": "", "cookie": cookie},
        {"authorization": ""},
    ):
        assert server.ask("/paste", method="POST", body=f"text={STUCK}", **headers)[0] == 403


def test_get_changes_nothing(server: Server) -> None:
    """Work is asked for by POST only."""
    key = server.keys()[0]
    assert "n_calls" not in server.ask(f"/case/{key}/sql?sql=SELECT+1+AS+n_calls")[1]
    assert server.ask("/", method="POST")[0] in (403, 405)
    assert server.ask("/live/dump")[0] == 405
    assert server.ask("/", method="DELETE")[0] in (403, 405)


def test_prometheus_reads_the_metrics(server: Server) -> None:
    """Its own parser finds the cases by status."""
    families = {f.name: f for f in text_string_to_metric_families(server.ask("/metrics")[1])}
    cases = {s.labels["status"]: s.value for s in families["unhang_cases"].samples}
    assert cases == {"healthy": 1.0, "insufficient": 0.0, "problem": 2.0, "slow": 1.0}
    assert families["unhang_cases_unreadable"].samples[0].value == 1.0
    assert families["unhang_newest_case_timestamp_seconds"].samples[0].value > 1e9


def test_a_token_that_others_can_read_is_none(tmp_path: Path) -> None:
    """Nor is one that is short or missing."""
    (tmp_path / "open").write_text("x" * 40)
    (tmp_path / "open").chmod(0o644)
    (tmp_path / "short").write_text("abc")
    (tmp_path / "short").chmod(0o600)
    for name, said in (("open", "others can read"), ("short", "no token"), ("none", "cannot be")):
        command = [sys.executable, "-m", "unhang", "serve", str(tmp_path), "--port", "0"]
        command += ["--token-file", str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode in (2, 3)
        assert said in done.stderr


def test_what_cannot_be_served_is_a_sentence(tmp_path: Path) -> None:
    """No directory, no port."""
    for words in ([str(tmp_path / "none")], [str(tmp_path), "--port", "99999"]):
        command = [sys.executable, "-m", "unhang", "serve", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode in (2, 3)
        assert done.stderr.startswith("unhang: ")
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_page_that_watches_does_not_keep_the_server(
    number: signal.Signals, tmp_path: Path
) -> None:
    """The live page reads for as long as it is open: the server ends all the same."""
    with serving(tmp_path) as (server, process):
        watching = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        watching.request("GET", "/live/events", headers={"authorization": f"Bearer {server.token}"})
        assert watching.getresponse().readline().startswith(b"event: look")
        process.send_signal(number)
        process.wait(30)
        watching.close()


def test_the_server_beside_a_job_ends_with_the_supervisor_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL leaves it no time to end its server, which ends by itself; the job is not asked."""
    job = [sys.executable, "-c", "import time; time.sleep(120)"]
    command = [sys.executable, "-m", "unhang", "run", "--serve", "--", *job]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    address = next(line for line in process.stderr if line.startswith("http://"))
    below = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    words = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in below}
    (server,) = (pid for pid, said in words.items() if b"--live" in said)
    seen = os.pidfd_open(server)
    try:
        process.kill()
        assert process.wait(30) == -signal.SIGKILL
        assert select.select([seen], [], [], 60)[0], address
    finally:
        os.close(seen)
        process.stderr.close()
        for pid in words:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
