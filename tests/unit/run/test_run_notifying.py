"""What is told elsewhere, and in which form; what a target is; who takes it, on a real server."""

from __future__ import annotations

import json
import shlex
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator

from unhang.errors import UsageError
from unhang.run.incident import notifying
from unhang.run.incident.notifying import (
    Notifier,
    Receiver,
    labels_of,
    payload_of,
    receiver_of,
)

SCHEMAS: Final = Path("tests/data/schemas")
ROUTING: Final = "0123456789abcdef0123456789abcdef"
NOTICE: Final[dict[str, Any]] = {
    "schema": "unhang.notice/1", "event": "verdict", "time_s": 0.0, "job": "train7",
    "case": "20261120-171049-train7", "incident": "20261120-171049-train7",
    "text": "no call has finished for 20 s", "status": "problem",
    "summary": "Rank 1 never called all_reduce #31 <x>.", "code": "UH101", "confidence": "high",
    "culprits": [1], "where": "train.py:20", "action": "look-first", "decision": "Look at rank 1.",
    "source": "batch = queue.get()", "before": "3 times at train.py:20 with this one",
    "run": "after 125 min, revision 0123456789 (main), torch 2.13.0",
    "host": "gpu-node-7", "link": "https://cases.example.com/20261120-171049-train7",
}  # fmt: skip
REPORT: Final = {
    "status": "problem",
    "summary": "Rank 1 on gpu-node-7 stands at /home/alice/secret-project/train.py:20.",
    "ranks": [{"rank": 1, "host": "gpu-node-7"}],
    "decision": {"action": "look-first", "text": "Look at gpu-node-7.", "confidence": "high"},
    "findings": [
        {"code": "UH101", "confidence": "high", "culprits": [1],
         "sites": [{"role": "culprit", "file": "/home/alice/train.py", "line": 20}]},
    ],
}  # fmt: skip


class Taken(HTTPServer):
    """A server that keeps what it is sent, and answers with the prepared codes in turn."""

    def __init__(self, *codes: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.codes, self.bodies, self.location = list(codes), [b""][:0], ""

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_port}/hook?token=abc"


class _Handler(BaseHTTPRequestHandler):
    server: Taken

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(self.server.codes.pop(0) if self.server.codes else 200)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Taken]:
    """One that runs."""
    with Taken() as taken:
        thread = threading.Thread(target=taken.serve_forever)
        thread.start()
        yield taken
        taken.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("https://hooks.slack.com/services/T/B/x", Receiver("slack", "https://hooks.slack.com/services/T/B/x")),
        ("slack+https://chat.example.com/hooks/1", Receiver("slack", "https://chat.example.com/hooks/1")),
        ("http://am:9093/api/v2/alerts", Receiver("alertmanager", "http://am:9093/api/v2/alerts")),
        ("https://example.com/hook", Receiver("json", "https://example.com/hook")),
        (f"https://events.pagerduty.com/v2/enqueue?routing_key={ROUTING}",
         Receiver("pagerduty", "https://events.pagerduty.com/v2/enqueue", key=ROUTING)),
        ("sh -c 'cat > out'", Receiver("command", command=("sh", "-c", "cat > out"))),
    ],
)  # fmt: skip
def test_targets_are_known_by_their_form(text: str, target: Receiver) -> None:
    """A prefix decides where the URL does not; a key is no part of a URL that is called."""
    assert receiver_of(text) == target


@pytest.mark.parametrize(
    "text",
    ["", "ftp://example.com/x", "https://", "http://[", "no-such-program --now", "'",
     "https://events.pagerduty.com/v2/enqueue"],
)  # fmt: skip
def test_what_is_no_target_is_refused_at_once(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the job starts, in a sentence."""
    monkeypatch.delenv("PAGERDUTY_ROUTING_KEY", raising=False)
    with pytest.raises(UsageError, match="--notify"):
        receiver_of(text)


def test_every_form_has_what_its_receiver_asks_for() -> None:
    """A text; an event with a key; alerts with labels; all there is."""
    moves_on = {**NOTICE, "event": "moves-on"}
    text = payload_of(Receiver("slack"), NOTICE)["text"]
    assert "Rank 1 never called all_reduce #31 &lt;x&gt;." in text
    assert "train.py:20" in text
    event = payload_of(Receiver("pagerduty", key=ROUTING), NOTICE)
    assert (event["event_action"], event["routing_key"]) == ("trigger", ROUTING)
    assert event["payload"]["severity"] == "critical"
    assert {"summary", "source", "severity"} <= event["payload"].keys()
    resolved = payload_of(Receiver("pagerduty", key=ROUTING), moves_on)
    assert (resolved["event_action"], resolved["dedup_key"]) == ("resolve", event["dedup_key"])
    (alert,) = payload_of(Receiver("alertmanager"), NOTICE)
    (ended,) = payload_of(Receiver("alertmanager"), moves_on)
    assert alert["labels"] == ended["labels"] == labels_of(NOTICE)
    assert {"confidence": "high", "action": "look-first"}.items() <= alert["labels"].items()
    assert (alert["startsAt"], ended["endsAt"]) == ("1970-01-01T00:00:00Z",) * 2
    assert alert["endsAt"] == "1970-01-02T00:00:00Z"  # else Alertmanager resolves it in minutes
    assert all(isinstance(value, str) for value in alert["annotations"].values())
    assert payload_of(Receiver("json"), NOTICE) == NOTICE


@pytest.mark.parametrize(
    ("form", "schema"),
    [("slack", "slack_webhook"), ("pagerduty", "pagerduty_events_v2"),
     ("alertmanager", "alertmanager_v2")],
)  # fmt: skip
@pytest.mark.parametrize("event", ["verdict", "moves-on"])
def test_bodies_have_the_shape_that_their_receivers_publish(
    form: str, schema: str, event: str
) -> None:
    """With everything; with one field empty; with a text that is too long."""
    shape = Draft202012Validator(json.loads((SCHEMAS / f"{schema}.json").read_text()))
    told = {**NOTICE, "event": event}
    empty = [{**told, key: ""} for key in NOTICE if key not in ("event", "text", "time_s")]
    for notice in (told, *empty, {**told, "summary": "x" * 9000}):
        shape.validate(payload_of(Receiver(form, key=ROUTING), notice))


def test_receivers_get_the_link_the_host_and_the_job() -> None:
    """Each where it shows such things."""
    link = NOTICE["link"]
    text = payload_of(Receiver("slack"), NOTICE)["text"]
    assert text.startswith("unhang: job train7 on gpu-node-7: ")
    assert text.endswith(f"\n{link}")
    event = payload_of(Receiver("pagerduty", key=ROUTING), NOTICE)
    assert (event["client_url"], event["links"][0]["href"]) == (link, link)
    assert (event["payload"]["source"], event["payload"]["group"]) == ("gpu-node-7", "train7")
    (alert,) = payload_of(Receiver("alertmanager"), NOTICE)
    assert (alert["generatorURL"], alert["annotations"]["host"]) == (link, "gpu-node-7")
    assert alert["labels"]["job"] == "train7"


def test_hosts_are_named_and_cases_linked_where_the_environment_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else hosts have stand-ins, and there is no link; what is no web address is none."""
    case = tmp_path / "20261120 a"
    case.mkdir()
    (case / "report.json").write_text(json.dumps(REPORT))
    order = {"event": "verdict", "case": str(case), "job": "j", "text": "t", "time_s": 0.0}
    plain = notifying._notice(order)
    assert (plain["host"], plain["link"]) == ("host1", "")
    monkeypatch.setenv("UNHANG_NOTIFY_HOSTS", "1")
    monkeypatch.setenv("UNHANG_NOTIFY_LINK", "https://cases.example.com/{job}/{case}")
    named = notifying._notice(order)
    assert named["host"] == "gpu-node-7"
    assert named["decision"] == "Look at gpu-node-7."
    assert named["link"] == "https://cases.example.com/j/20261120%20a"
    assert "alice" not in json.dumps(named)
    monkeypatch.setenv("UNHANG_NOTIFY_LINK", "javascript:alert(1)")
    assert notifying._notice(order)["link"] == ""


def test_one_hang_has_one_alert_whatever_a_second_look_says() -> None:
    """What was open is ended by its own labels, in the message that opens the next."""
    first = {**NOTICE, "confidence": "low", "action": "wait"}
    again = {**NOTICE, "case": "20261120-171149-train7"}
    ended, opened = payload_of(Receiver("alertmanager"), again, labels_of(first))
    assert (ended["labels"], ended["endsAt"]) == (labels_of(first), "1970-01-01T00:00:00Z")
    assert (opened["labels"]["severity"], ended["labels"]["severity"]) == ("critical", "warning")
    assert opened["labels"]["incident"] == ended["labels"]["incident"] == first["case"]
    (same,) = payload_of(Receiver("alertmanager"), again, labels_of(NOTICE))
    assert same["endsAt"] == "1970-01-02T00:00:00Z"
    moves_on = {**again, "event": "moves-on", "confidence": ""}
    (over,) = payload_of(Receiver("alertmanager"), moves_on, labels_of(again))
    assert (over["labels"], "startsAt" in over) == (labels_of(again), False)
    keys = [payload_of(Receiver("pagerduty", key="k"), each) for each in (first, again, moves_on)]
    assert len({event["dedup_key"] for event in keys}) == 1


def test_looks_at_one_hang_are_told_as_one(tmp_path: Path, server: Taken) -> None:
    """Until the job moves on; what comes after that is another hang."""
    notifier = Notifier([server.url], "train7", tmp_path / "log", lambda _: None)
    for event, name in (
        ("verdict", "one"), ("verdict", "two"), ("moves-on", "two"), ("verdict", "three"),
    ):  # fmt: skip
        case = tmp_path / name
        case.mkdir(exist_ok=True)
        (case / "report.json").write_text(json.dumps(REPORT))
        notifier.tell(event, case, "it stood still")
        assert notifier._under_way[-1].wait() == 0
    told = [json.loads(body) for body in server.bodies]
    assert [(each["case"], each["incident"]) for each in told] == [
        ("one", "one"), ("two", "one"), ("two", "one"), ("three", "three"),
    ]  # fmt: skip


def told(tmp_path: Path, *targets: str, patience: bool = True) -> list[str]:
    """Tell of a verdict; returns what was said to the user."""
    case = tmp_path / "20261120-171049-train7"
    case.mkdir()
    (case / "report.json").write_text(json.dumps(REPORT))
    said: list[str] = []
    notifier = Notifier(targets, "train7", tmp_path / "log", said.append)
    notifier.tell("verdict", case, "no call has finished for 20 s")
    if patience:
        for process in notifier._under_way:
            process.wait()
    notifier.finish(lambda: patience)
    for process in notifier._under_way:
        process.kill()
        process.wait()
    return said


def test_a_server_gets_it_without_names_and_at_the_second_try(
    tmp_path: Path, server: Taken
) -> None:
    """503 is tried again; neither host, user nor directory leaves."""
    server.codes = [503]
    assert told(tmp_path, server.url) == []
    first, second = map(json.loads, server.bodies)
    assert first == second
    assert (second["code"], second["culprits"], second["where"]) == ("UH101", [1], "train.py:20")
    assert second["case"] == "20261120-171049-train7"
    assert (second["source"], second["before"], second["run"]) == ("", "", "")
    assert not any(name in server.bodies[0] for name in (b"gpu-node-7", b"alice", b"secret-proj"))


def test_what_a_server_refuses_is_said_without_its_secrets(tmp_path: Path, server: Taken) -> None:
    """404 is not tried again; of the URL only the host is printed."""
    server.codes = [404]
    assert told(tmp_path, server.url) == ["127.0.0.1 refused the notification: status 404"]
    assert len(server.bodies) == 1


def test_a_command_gets_it_on_its_standard_input(tmp_path: Path) -> None:
    """And the case in its environment, so that it can look for more."""
    program = (
        "import os, sys; open(sys.argv[1], 'w').write(os.environ['UNHANG_CASE'] + sys.stdin.read())"
    )
    command = shlex.join([sys.executable, "-c", program, str(tmp_path / "out")])
    assert told(tmp_path, command, "false") == ["false refused the notification: exit code 1"]
    case, _, rest = (tmp_path / "out").read_text().partition("{")
    assert case == str(tmp_path / "20261120-171049-train7")
    assert json.loads("{" + rest)["event"] == "verdict"


def test_a_target_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody is in a hurry: the message is left on its way, and that is said."""
    monkeypatch.setattr(notifying, "FINISH_S", 0.0)
    assert told(tmp_path, "sleep 100", patience=False) == ["a notification is still under way"]


def test_a_message_goes_to_no_other_host() -> None:
    """A redirect is no receipt, and where it leads nothing is sent."""
    other, server = Taken(), Taken(302)
    server.location = other.url
    for each in (other, server):
        threading.Thread(target=each.serve_forever, daemon=True).start()
    assert notifying._post(server.url, b"{}") == ("status 302", False)
    assert (len(server.bodies), other.bodies) == (1, [])
    for each in (other, server):
        each.shutdown()
        each.server_close()


def test_a_server_that_never_ends_its_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though each byte comes in time: the clock decides, not the silence."""
    monkeypatch.setattr(notifying, "ANSWER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_trickle, args=(server,), daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        assert notifying._post(url, b"{}") == ("TimeoutError", True)


def _trickle(server: socket.socket) -> None:
    client, _ = server.accept()
    with client, suppress(OSError):
        client.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            client.sendall(b"X-A: b\r\n")
            time.sleep(0.1)


def test_people_are_told_the_code_and_that_it_was_there_before() -> None:
    """In a chat: the line itself, how often it was this line, and what ran."""
    text = payload_of(Receiver("slack", "https://hooks.example"), NOTICE)["text"]
    assert "at train.py:20: batch = queue.get()\n3 times at train.py:20 with this one\n" in text
    assert "revision 0123456789 (main)" in text


def test_what_a_case_adds_is_in_the_notice(tmp_path: Path) -> None:
    """Of the report's own first site, its history and its identity."""
    site = {
        "role": "culprit", "file": "/w/train.py", "line": 20,
        "source": {"first": 19, "lines": ["while True:", "    batch = queue.get()"]},
    }  # fmt: skip
    report = {
        "findings": [{"sites": [site]}],
        "before": {"times": 3, "place": "train.py:20"},
        "identity": {
            "ran_s": 7500.0,
            "revision": "0123456789 (main)",
            "versions": ["torch 2.13.0"],
        },
    }
    (tmp_path / "report.json").write_text(json.dumps(report))
    order = {"event": "verdict", "case": str(tmp_path), "job": "j", "text": "t", "time_s": 0.0}
    told = notifying._notice(order)
    assert {key: told[key] for key in ("source", "before", "run")} == {
        key: NOTICE[key] for key in ("source", "before", "run")
    }
