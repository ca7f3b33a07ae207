"""A small Kubernetes API for the real kubectl: lists pods, and runs `exec` on this machine.

It knows what `kubectl get pods -l`, `exec -i` and `debug -i` ask, no more. Exec is remote command
v4 over SPDY/3.1, which every kubectl speaks (newer ones after their WebSocket was refused): streams
come in the fixed order error, stdin, stdout, stderr, so their compressed headers need not be read.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO, ClassVar
from urllib.parse import parse_qs, urlsplit

_ERROR, _STDIN, _STDOUT, _STDERR = 1, 3, 5, 7
_SYN_STREAM, _SYN_REPLY, _PING = 1, 2, 6
_FIN = 1


@dataclass
class KubeApi:
    """What the API tells, and what it was asked.

    Attributes:
        pods: Their phases, by name.
        labels: The labels of all of them.
        execs: The pod of each exec.
        enters: By pod, what runs a command in it; without, it runs on this machine.
        inside: What runs the command of an ephemeral container.
        debuggers: The ephemeral containers that were asked for.
    """

    pods: Mapping[str, str]
    labels: str
    execs: list[str] = field(default_factory=list)
    enters: dict[str, list[str]] = field(default_factory=dict)
    inside: Sequence[str] = ()
    debuggers: list[dict[str, Any]] = field(default_factory=list)

    def pod(self, name: str) -> dict[str, object]:
        """A pod as the API describes it."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "research"},
            "spec": {
                "containers": [{"name": "train", "image": "train"}],
                "ephemeralContainers": self.debuggers,
            },
            "status": {
                "phase": self.pods[name],
                "ephemeralContainerStatuses": [
                    {"name": each["name"], "state": {"running": {}}} for each in self.debuggers
                ],
            },
        }

    def answer(self, path: str, query: Mapping[str, list[str]]) -> object:
        """What is at a path; None where there is nothing."""
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": []}
        if path == "/api/v1":
            verbs = ["get", "list", "create"]
            resources = [{"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod",
                          "verbs": verbs, "shortNames": ["po"]}]  # fmt: skip
            return {"kind": "APIResourceList", "groupVersion": "v1", "resources": resources}
        if path == "/api/v1/namespaces/research/pods":
            chosen = self.pods if query.get("labelSelector") == [self.labels] else ()
            if "fieldSelector" in query:
                chosen = [query["fieldSelector"][0].removeprefix("metadata.name=")]
            items = [self.pod(name) for name in chosen]
            return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}
        name = path.removeprefix("/api/v1/namespaces/research/pods/")
        return self.pod(name) if name in self.pods else None


@contextmanager
def kube_api(pods: Mapping[str, str], labels: str, folder: Path) -> Iterator[tuple[KubeApi, Path]]:
    """Serve such an API; gives it and a configuration for kubectl."""
    api = KubeApi(pods, labels)
    handler = type("Handler", (_Handler,), {"api": api})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = folder / "kubeconfig"
    config.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {
            "server": f"http://127.0.0.1:{server.server_address[1]}"}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }))  # fmt: skip
    try:
        yield api, config
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    api: ClassVar[KubeApi]

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer as JSON; WebSockets are refused, so that kubectl falls back to SPDY."""
        url = urlsplit(self.path)
        self._say(self.api.answer(url.path, parse_qs(url.query)))

    def do_PATCH(self) -> None:
        """Take in the ephemeral container that a pod is to have."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.api.debuggers[:] = asked["spec"]["ephemeralContainers"]
        self._say(self.api.pod(self.path.split("/")[-2]))

    def _say(self, found: object) -> None:
        body = json.dumps(found or {"kind": "Status", "apiVersion": "v1", "code": 404}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """Exec, attach: become SPDY and run the command."""
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        if url.path.endswith("/attach"):
            command = [*self.api.inside, *self.api.debuggers[-1]["command"]]
        else:
            command = [*self.api.enters.get(url.path.split("/")[-2], ()), *query["command"]]
        self.api.execs.append(url.path.split("/")[-2])
        self.send_response(101)
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", "SPDY/3.1")
        self.send_header("X-Stream-Protocol-Version", "v4.channel.k8s.io")
        self.end_headers()
        self.close_connection = True
        with suppress(OSError):
            _Exec(self.connection, self.rfile).run(command)


class _Exec:
    """One command behind one SPDY connection."""

    def __init__(self, connection: socket.socket, incoming: BinaryIO) -> None:
        self._connection, self._incoming = connection, incoming
        self._headers = zlib.compressobj()
        self._lock = threading.Lock()
        self._opened = threading.Event()

    def run(self, command: list[str]) -> None:
        """Run it with its streams, then say how it ended."""
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        reader = threading.Thread(target=self._read, args=(child.stdin,), daemon=True)
        reader.start()
        self._opened.wait(60)
        out = threading.Thread(target=self._pump, args=(child.stdout, _STDOUT), daemon=True)
        out.start()
        self._pump(child.stderr, _STDERR)
        out.join()
        code = child.wait()
        status: dict[str, object] = {"metadata": {}, "status": "Success"}
        if code:
            cause = {"reason": "ExitCode", "message": str(code)}
            status = {"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
                      "message": f"exit code {code}", "details": {"causes": [cause]}}  # fmt: skip
        self._send(_ERROR, json.dumps(status).encode(), _FIN)
        reader.join(60)

    def _read(self, stdin: BinaryIO) -> None:
        """Take in frames until the client hangs up; its input goes to the command."""
        while len(head := self._incoming.read(8)) == 8:
            first, second = struct.unpack(">II", head)
            flags, body = second >> 24, self._incoming.read(second & 0xFFFFFF)
            if first >> 31:
                self._control(first & 0xFFFF, body)
                continue
            with suppress(OSError, ValueError):
                stdin.write(body)
                if flags & _FIN:
                    stdin.close()

    def _control(self, kind: int, body: bytes) -> None:
        if kind == _SYN_STREAM:
            stream = struct.unpack(">I", body[:4])[0] & 0x7FFFFFFF
            with self._lock:  # no headers, in the connection's one compressed stream of them
                block = self._headers.compress(b"\0\0\0\0") + self._headers.flush(zlib.Z_SYNC_FLUSH)
                self._control_frame(_SYN_REPLY, struct.pack(">I", stream) + block)
            if stream == _STDERR:
                self._opened.set()
        elif kind == _PING:
            with self._lock:
                self._control_frame(_PING, body)

    def _control_frame(self, kind: int, body: bytes) -> None:
        self._connection.sendall(struct.pack(">HHI", 0x8003, kind, len(body)) + body)

    def _pump(self, source: BinaryIO, stream: int) -> None:
        while data := source.read1(32_768):  # type: ignore[attr-defined]  # a pipe is buffered
            self._send(stream, data)
        self._send(stream, b"", _FIN)

    def _send(self, stream: int, data: bytes, flags: int = 0) -> None:
        with self._lock:
            self._connection.sendall(struct.pack(">II", stream, flags << 24 | len(data)) + data)
