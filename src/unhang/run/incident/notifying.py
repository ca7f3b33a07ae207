"""Tells people elsewhere of a verdict, and that a job goes on: `unhang run --notify`.

A process of its own (this module, by `unhang.isolated`) takes each message where it is to
go, so that a network that hangs keeps neither the job nor its watching. What is sent is short, and
without secrets, hosts, users and directories (`unhang.redact`). Targets may hold keys: they travel
by stdin, and only a target's host or program is ever printed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from unhang.errors import UsageError
from unhang.incoming import overlaid, value_of
from unhang.isolated import python_command
from unhang.wording import printable

SCHEMA: Final = "unhang.notice/1"
FORMS: Final = ("slack", "pagerduty", "alertmanager", "json")
KEY: Final = "routing_key"
KEY_VARIABLE: Final = "PAGERDUTY_ROUTING_KEY"
LINK_VARIABLE: Final = "UNHANG_NOTIFY_LINK"
"""Where a case can be seen: a URL in which {case} and {job} are replaced."""
HOSTS_VARIABLE: Final = "UNHANG_NOTIFY_HOSTS"
"""Set to 1: hosts are named as they are."""
TRIES, FIRST_PAUSE_S, ANSWER_S, COMMAND_S = 4, 1.0, 10.0, 60.0
TARGET_S: Final = 40.0
"""So long tries of one target begin: the next target waits for it."""
ALERT_S: Final = 24 * 3600.0
"""So long an alert lasts that nothing ends: without an end Alertmanager drops it after minutes."""
FINISH_S: Final = 5.0
"""So long the end of `unhang run` waits for messages under way; they are not broken off."""

_URL: Final = re.compile(rf"(?:({'|'.join(FORMS)})\+)?(https?://.+)", re.IGNORECASE)
_SCHEME: Final = re.compile(r"[\w+.-]+://")
_TEMPORARY: Final = (408, 425, 429)


@dataclass(frozen=True, slots=True)
class Receiver:
    """Where messages go.

    Attributes:
        form: One of FORMS, or "command".
        url: Without the key, for a URL.
        command: Its words, for a command.
        key: PagerDuty's routing key.
    """

    form: str
    url: str = ""
    command: tuple[str, ...] = ()
    key: str = ""

    @property
    def name(self) -> str:
        """What may be printed of it: URLs and arguments hold keys."""
        return printable(urlsplit(self.url).hostname or "" if self.url else self.command[0])


def receiver_of(text: str) -> Receiver:
    """Read what --notify was given.

    Raises:
        UsageError: It is neither a URL nor a command that is there.
    """
    found = _URL.fullmatch(text)
    if found is None:
        return _command(text)
    url = found[2]
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host:
        raise UsageError("--notify has a URL without a host", "--notify https://host/path")
    form = (found[1] or _form_of(host, parts.path)).lower()
    if form != "pagerduty":
        return Receiver(form, url)
    query = dict(parse_qsl(parts.query))
    key = query.pop(KEY, "") or os.environ.get(KEY_VARIABLE, "")
    if not key:
        hint = f"set {KEY_VARIABLE}, or add ?{KEY}=… to the URL"
        raise UsageError("--notify has no routing key for PagerDuty", hint)
    return Receiver(form, urlunsplit(parts._replace(query=urlencode(query))), key=key)


def _form_of(host: str, path: str) -> str:
    if host == "hooks.slack.com":
        return "slack"
    if host.startswith("events.") and host.endswith("pagerduty.com"):
        return "pagerduty"
    return "alertmanager" if path.rstrip("/").endswith("/api/v2/alerts") else "json"


def _command(text: str) -> Receiver:
    if _SCHEME.match(text):
        forms = ", ".join(f"{form}+https://" for form in FORMS)
        raise UsageError("--notify takes http and https", f"or one of {forms}; or a command")
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"--notify cannot read that command: {error}") from error
    if not words or shutil.which(words[0]) is None:
        name = printable(words[0]) if words else "nothing"
        hint = "give a URL, or a command that reads JSON from standard input"
        raise UsageError(f"--notify: there is no command {name}", hint)
    return Receiver("command", command=words)


# ------------------------------------------------------------------ next to the watching


@dataclass(slots=True)
class Notifier:
    """Starts a process for each message; nothing that it does raises.

    Attributes:
        targets: As `--notify` has them; `receiver_of` takes each.
        log: Where the processes say what went wrong.
    """

    targets: Sequence[str]
    job: str
    log: Path
    say: Callable[[str], None]
    _under_way: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def tell(self, event: str, case: Path | None, text: str) -> None:
        """Send a message on its way.

        Args:
            event: "verdict" or "moves-on".
            case: The incident's case; its report is read.
            text: What happened, in a sentence.
        """
        if not self.targets:
            return
        order = {
            "targets": list(self.targets),
            "event": event,
            "case": str(case or ""),
            "job": self.job,
            "time_s": time.time(),
            "text": text,
            "open": str(self.log.with_name("notified.json")),
        }
        try:
            with self.log.open("ab") as log:
                process = subprocess.Popen(  # noqa: S603 - our own module
                    python_command("unhang.run.incident.notifying"),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    start_new_session=True,
                )
            self._under_way.append(process)
            if process.stdin is not None:
                with process.stdin as pipe:  # Which takes more than an order has.
                    pipe.write(json.dumps(order).encode())
        except (OSError, ValueError) as error:
            self.say(f"the notification failed: {error}")

    def finish(self, in_time: Callable[[], bool]) -> None:
        """At the end of the run: wait a moment, and say what was not taken."""
        deadline = time.monotonic() + FINISH_S
        while any(process.poll() is None for process in self._under_way):
            if time.monotonic() > deadline or not in_time():
                self.say("a notification is still under way")
                break
            time.sleep(0.05)
        try:
            said = self.log.read_text(encoding="utf-8", errors="replace") if self.targets else ""
        except OSError:
            return
        for line in said.splitlines()[-5:]:
            self.say(printable(line))


# ------------------------------------------------------------------ the message


def payload_of(
    target: Receiver, notice: Mapping[str, Any], before: Mapping[str, str] | None = None
) -> Any:  # noqa: ANN401 - JSON
    """The JSON that a target takes.

    Args:
        target: Which.
        notice: What happened.
        before: Labels of the alert about the same hang that is open.
    """
    if target.form == "slack":
        return {"text": _lines(notice)[:_MOST_TEXT]}
    if target.form == "pagerduty":
        return _pagerduty(target.key, notice)
    if target.form == "alertmanager":
        return _alerts(notice, before or {})
    return dict(notice)


_MOST_TEXT: Final = 4000
"""Slack's advice for a text."""


def _lines(notice: Mapping[str, Any]) -> str:
    """A few lines for people; Slack reads &, < and > as its own."""
    on = f" on {notice['host']}" if notice["host"] else ""
    lines = [f"unhang: job {notice['job']}{on}: {notice['text']}", notice["summary"]]
    if notice["where"]:
        code = f": {notice['source']}" if notice["source"] else ""
        lines.append(f"at {notice['where']}{code}")
    lines += [line for line in (notice["before"], notice["run"]) if line]
    if notice["decision"] and notice["event"] == "verdict":
        lines.append(f"{notice['decision']} ({notice['confidence']} confidence, {notice['code']})")
    lines.append(notice["link"])
    text = "\n".join(line for line in lines if line)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _pagerduty(key: str, notice: Mapping[str, Any]) -> dict[str, Any]:
    """An event of PagerDuty's Events API v2; the job that goes on resolves it."""
    value: dict[str, Any] = {
        "routing_key": key,
        "event_action": "trigger" if notice["event"] == "verdict" else "resolve",
        "dedup_key": f"unhang/{notice['job']}/{notice['incident']}"[:255],
    }
    if notice["event"] == "verdict":
        value["client"] = "unhang"
        value["payload"] = {
            "summary": (notice["summary"] or notice["text"])[:1024],
            "source": notice["host"] or notice["job"] or "unhang",
            "severity": _severity(notice),
            "timestamp": _stamp(notice["time_s"]),
            "group": notice["job"],
            "class": notice["code"],
            "custom_details": dict(notice),
        }
        if notice["link"]:
            value |= {"client_url": notice["link"]}
            value["links"] = [{"href": notice["link"], "text": f"case {notice['case']}"}]
    return value


def labels_of(notice: Mapping[str, Any]) -> dict[str, str]:
    """What an alert is known by, and routed by."""
    told = {name: str(notice[name]) for name in _LABELS if notice[name]}
    return {"alertname": "Unhang", "severity": _severity(notice), **told}


_LABELS: Final = ("job", "incident", "confidence", "action")
_ANNOTATIONS: Final = ("summary", "text", "where", "host", "decision", "code", "case")


def _alerts(notice: Mapping[str, Any], before: Mapping[str, str]) -> list[dict[str, Any]]:
    """Alerts of Alertmanager's API v2: a hang has one at a time, and its own labels end it.

    A second look may be surer than the first, so that the alert goes another way: it takes the
    place of that before.
    """
    labels, over = labels_of(notice), notice["event"] == "moves-on"
    ended = (before or labels) if over else before if before != labels else {}
    now = _stamp(notice["time_s"])
    alerts = [_alert(notice, ended, {"endsAt": now})] if ended else []
    if not over:
        ends = _stamp(notice["time_s"] + ALERT_S)
        alerts.append(_alert(notice, labels, {"startsAt": now, "endsAt": ends}))
    return alerts


def _alert(
    notice: Mapping[str, Any], labels: Mapping[str, str], times: Mapping[str, str]
) -> dict[str, Any]:
    told = {name: str(notice[name]) for name in _ANNOTATIONS if notice[name]}
    link = {"generatorURL": notice["link"]} if notice["link"] else {}
    return {"labels": dict(labels), "annotations": told, **link, **times}


def _stamp(time_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_s))


def _severity(notice: Mapping[str, Any]) -> str:
    return "critical" if notice["confidence"] in ("high", "medium") else "warning"


def _notice(order: Mapping[str, Any]) -> dict[str, Any]:
    """What a notice says of an incident, redacted: the report's first finding and its decision."""
    from unhang.redact import Redactor

    case = Path(order["case"]) if order["case"] else None
    try:
        report = json.loads((case / "report.json").read_text(encoding="utf-8")) if case else {}
    except (OSError, ValueError):
        report = {}
    told = {"job": order["job"], "text": order["text"], "name": case.name if case else ""}
    redactor = Redactor()
    if os.environ.get(HOSTS_VARIABLE) == "1":
        redactor.keep(each.get("host", "") for each in report.get("ranks", ()))
    clean = redactor.value({"report": report, **told})
    report = clean["report"]
    first: Mapping[str, Any] = next(iter(report.get("findings", ())), {})
    site = next((s for s in first.get("sites", ()) if s["role"] == "culprit"), None)
    decision = report.get("decision") or {}
    return {
        "schema": SCHEMA,
        "event": order["event"],
        "time_s": order["time_s"],
        "job": clean["job"],
        "case": clean["name"],
        "incident": clean["name"],
        "text": clean["text"],
        "status": report.get("status", ""),
        "summary": report.get("summary", ""),
        "code": first.get("code", ""),
        "confidence": first.get("confidence", ""),
        "culprits": first.get("culprits", []),
        "host": _hosts(report, first),
        "link": _link(clean["name"], clean["job"]),
        "where": f"{site['file'].rpartition('/')[2]}:{site['line']}" if site else "",
        "source": _line_of(site),
        "before": _before(report.get("before") or {}),
        "run": _run_of(report.get("identity") or {}),
        "action": decision.get("action", ""),
        "decision": decision.get("text", ""),
    }


def _hosts(report: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    """The hosts of the culprits, some of them."""
    blamed = set(first.get("culprits", ()))
    hosts = (each.get("host", "") for each in report.get("ranks", ()) if each["rank"] in blamed)
    return ", ".join(sorted(set(hosts) - {""})[:_MOST_HOSTS])


_MOST_HOSTS: Final = 4


def _link(case: str, job: str) -> str:
    """Where the case can be seen, if the environment tells: http or https, else nothing."""
    url = os.environ.get(LINK_VARIABLE, "")
    made = url.replace("{case}", quote(case, safe="")).replace("{job}", quote(job, safe=""))
    return made if re.match("https?://", made) else ""


def _line_of(site: Mapping[str, Any] | None) -> str:
    """The line of code at a site; "" where the case does not have it."""
    source = (site or {}).get("source")
    if not site or not source:
        return ""
    return printable(source["lines"][site["line"] - source["first"]].strip(), 160)


def _before(told: Mapping[str, Any]) -> str:
    return f"{told['times']} times at {told['place']} with this one" if told else ""


def _run_of(told: Mapping[str, Any]) -> str:
    """What ran, and which revision."""
    revision = f"revision {told['revision']}" if told.get("revision") else ""
    ran = f"after {told['ran_s'] / 60:,.0f} min" if told.get("ran_s") else ""
    return ", ".join(filter(None, (ran, revision, *told.get("versions", ()))))


# ------------------------------------------------------------------ the process


@dataclass(frozen=True, slots=True)
class _Open:
    """What receivers know of the present hang, kept in the folder of this run.

    Attributes:
        incident: Name of its first case.
        labels: Of the alert that is open.
    """

    incident: str = ""
    labels: dict[str, str] = field(default_factory=dict)


def _open_at(place: Path) -> _Open:
    try:
        return overlaid(_Open(), value_of(place.read_bytes()))[0]
    except (OSError, ValueError):
        return _Open()


def _keep_open(place: Path, notice: Mapping[str, Any]) -> None:
    """For the next message about this hang; none follows on that the job moves on."""
    if notice["event"] == "moves-on":
        place.unlink(missing_ok=True)
        return
    told = {"incident": notice["incident"], "labels": labels_of(notice)}
    try:
        place.write_text(json.dumps(told), encoding="utf-8")
    except OSError as error:
        print(f"the next message stands by itself: {error.strerror}", file=sys.stderr)  # noqa: T201 - our log


def _send(target: Receiver, notice: Mapping[str, Any], case: str, before: Mapping[str, str]) -> str:
    """Take a message to its target; returns why it was not taken, or ""."""
    data = json.dumps(payload_of(target, notice, before)).encode()
    if target.form == "command":
        return _run(target.command, data, notice["event"], case)
    why, until = "", time.monotonic() + TARGET_S
    for number in range(TRIES):
        pause = FIRST_PAUSE_S * 4 ** (number - 1) if number else 0.0
        if time.monotonic() + pause > until:
            break
        time.sleep(pause)
        why, again = _post(target.url, data)
        if not again:
            break
    return why


def _post(url: str, data: bytes) -> tuple[str, bool]:
    """Why it was not taken, or ""; and whether another try may help."""
    import http.client
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class Stay(HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            """Go nowhere else: what was posted would be lost, and the host was not named by us."""

    headers = {"Content-Type": "application/json", "User-Agent": "unhang"}
    request = Request(url, data, headers)  # noqa: S310 - http or https, by `receiver_of`
    try:
        with _within(ANSWER_S), build_opener(Stay).open(request, timeout=ANSWER_S):
            return "", False
    except HTTPError as error:
        with error:
            return f"status {error.code}", error.code >= 500 or error.code in _TEMPORARY  # noqa: PLR2004 - the server's own
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        return type(reason).__name__, not isinstance(error, ValueError)


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raise TimeoutError when the time is over: a server may send a byte now and then for ever."""

    def end(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _run(command: Sequence[str], data: bytes, event: str, case: str) -> str:
    env = {**os.environ, "UNHANG_EVENT": event, "UNHANG_CASE": case}
    try:
        done = subprocess.run(  # noqa: S603 - what the user wants
            command,
            input=data,
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=COMMAND_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it took more than {COMMAND_S:.0f} s"
    except OSError as error:
        return str(error.strerror)
    return f"exit code {done.returncode}" if done.returncode else ""


def main() -> int:
    """Send the message that comes on stdin to each of its targets."""
    order = json.loads(sys.stdin.buffer.read())
    notice, place = _notice(order), Path(order.get("open", ""))
    before = _open_at(place)
    notice["incident"] = before.incident or notice["incident"]
    _keep_open(place, notice)
    failed = 0
    for target in map(receiver_of, order["targets"]):
        if why := _send(target, notice, order["case"], before.labels):
            print(f"{target.name} refused the notification: {why}", file=sys.stderr)  # noqa: T201 - our log
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
