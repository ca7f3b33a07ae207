"""Programs that never get on: blocked, polling or spinning."""

from __future__ import annotations

import fcntl
import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from common import forever, main, poll, program, scratch


@program("waits")
def lock_held_by_the_waiter() -> None:
    """A lock that the same thread took before: the most common host-side deadlock."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


@program("waits")
def queue_without_producer() -> None:
    """`queue.get()` after the producer thread has died: a data pipeline that ran dry."""
    threading.Thread(target=lambda: None).start()
    queue.Queue[int]().get()


@program("waits")
def condition_never_set() -> None:
    """An event that another component should have set."""
    threading.Event().wait()


@program("waits")
def pipe_without_writer_data() -> None:
    """A read from a pipe whose writer lives and says nothing: a stuck data-loader worker."""
    reader, _writer = os.pipe()
    os.read(reader, 1)


@program("waits")
def socket_without_answer() -> None:
    """A request without a time-out to a server that never answers."""
    ours, _theirs = socket.socketpair()
    ours.sendall(b"request")
    ours.recv(1)


@program("waits")
def tcp_without_answer() -> None:
    """The same over TCP, as to a store or an object store behind a dead proxy."""
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    client.sendall(b"GET / HTTP/1.1\r\n\r\n")
    client.recv(1)


@program("waits")
def child_that_waits() -> None:
    """`subprocess.run` of a program that waits for input: a tool that asks a question."""
    subprocess.run([sys.executable, "-c", "import time; time.sleep(1e6)"], check=False)


@program("waits")
def file_lock_of_another() -> None:
    """A file lock whose holder lives and never lets go: a cache directory on shared storage."""
    path = scratch() / "lock"
    holder = path.open("w")
    fcntl.flock(holder, fcntl.LOCK_EX)
    other = path.open("w")
    fcntl.flock(other, fcntl.LOCK_EX)


@program("waits")
def thread_joined_that_waits() -> None:
    """`thread.join()` of a thread that waits for an event: an asynchronous checkpoint's writer."""
    event = threading.Event()
    thread = threading.Thread(target=event.wait, daemon=True)
    thread.start()
    thread.join()


@program("waits")
def waits_beside_a_heartbeat_thread() -> None:
    """Blocked, while a thread of a monitor wakes ten times a second."""
    threading.Thread(target=forever, args=(lambda: time.sleep(0.1),), daemon=True).start()
    threading.Event().wait()


@program("waits")
def waits_beside_a_logging_thread() -> None:
    """Blocked, while a metrics thread appends a line to a file every second."""
    file = (scratch() / "metrics").open("w")

    def turn() -> None:
        file.write(json.dumps({"time": time.time(), "gpu": 0.0}) + "\n")
        file.flush()
        time.sleep(1.0)

    threading.Thread(target=forever, args=(turn,), daemon=True).start()
    queue.Queue[int]().get()


@program("waits")
def waits_beside_a_talking_socket_thread() -> None:
    """Blocked, while a background thread exchanges small messages, as keep-alives are."""
    ours, theirs = socket.socketpair()

    def turn() -> None:
        ours.sendall(b"x" * 64)
        theirs.recv(64)
        time.sleep(0.5)

    threading.Thread(target=forever, args=(turn,), daemon=True).start()
    threading.Event().wait()


@program("polls")
def polls_a_file_fast() -> None:
    """A flag file that nobody writes, looked for a hundred times a second."""
    poll(0.01, (scratch() / "done").exists)


@program("polls")
def polls_a_file_slowly() -> None:
    """The same once a second."""
    poll(1.0, (scratch() / "done").exists)


@program("polls")
def polls_a_folder() -> None:
    """A folder that is listed for a checkpoint that never comes."""
    folder = scratch()
    for number in range(200):
        (folder / f"step-{number}").touch()
    poll(0.5, lambda: "final" in os.listdir(folder))


@program("polls")
def polls_a_json_file() -> None:
    """A status file that is parsed again and again and never says "ready"."""
    path = scratch() / "status.json"
    path.write_text(json.dumps({"state": "pending", "jobs": list(range(50))}))
    poll(0.2, lambda: json.loads(path.read_text())["state"] == "ready")


@program("polls")
def polls_a_queue_with_timeout() -> None:
    """`queue.get(timeout=5)` in a loop that swallows `Empty`."""
    empty = queue.Queue[int]()

    def look() -> bool:
        try:
            empty.get(timeout=5.0)
        except queue.Empty:
            return False
        return True

    poll(0.0, look)


@program("polls")
def polls_an_event_with_timeout() -> None:
    """`event.wait(1)` in a loop."""
    event = threading.Event()
    poll(0.0, lambda: event.wait(1.0))


@program("polls")
def polls_a_store_over_tcp() -> None:
    """A key-value server asked ten times a second for a key that nobody sets."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        peer, _ = server.accept()
        while peer.recv(64):
            peer.sendall(b"none")

    threading.Thread(target=serve, daemon=True).start()
    client = socket.create_connection(server.getsockname())

    def look() -> bool:
        client.sendall(b"get done")
        return client.recv(64) != b"none"

    poll(0.1, look)


@program("polls")
def polls_and_connects() -> None:
    """Connects again and again to an address where nobody listens; says nothing of it."""
    server = socket.create_server(("127.0.0.1", 0))
    address = server.getsockname()
    server.close()

    def look() -> bool:
        with socket.socket() as client:
            return client.connect_ex(address) == 0

    poll(0.5, look)


@program("polls")
def polls_for_a_process() -> None:
    """Waits for a child that never ends, in a loop of `poll()`."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1e6)"])
    poll(0.05, lambda: child.poll() is not None)


@program("spins")
def spins_on_a_flag() -> None:
    """A busy wait for a flag that another thread never sets."""
    done: list[int] = []
    while not done:
        pass


@program("spins")
def spins_yielding() -> None:
    """A busy wait that gives its core away each time."""
    done: list[int] = []
    while not done:
        os.sched_yield()


@program("waits")
def barrier_of_threads() -> None:
    """A `threading.Barrier` that one party never reaches."""
    threading.Barrier(2).wait()


@program("waits")
def semaphore_of_processes() -> None:
    """A semaphore shared among processes, whose holder has died."""
    import multiprocessing

    semaphore = multiprocessing.Semaphore(1)
    semaphore.acquire()
    semaphore.acquire()


@program("waits")
def accepts_a_peer_that_never_comes() -> None:
    """`accept()` for a peer that never connects: a rendezvous of one's own."""
    socket.create_server(("127.0.0.1", 0)).accept()


@program("waits")
def select_without_time_out() -> None:
    """An event loop of which no descriptor becomes ready."""
    import select

    ours, _theirs = socket.socketpair()
    select.select([ours], [], [])


@program("waits")
def writes_into_a_full_pipe() -> None:
    """Prints into a pipe that nobody reads: a log collector that has stopped."""
    _reader, writer = os.pipe()
    forever(lambda: os.write(writer, b"x" * 4096))


@program("waits")
def waits_beside_a_busy_monitor_process() -> None:
    """Blocked; a monitor that it started wakes once a second and reads /proc."""
    code = "import time\nwhile True:\n open('/proc/stat').read(); time.sleep(1)"
    subprocess.Popen([sys.executable, "-c", code])
    threading.Event().wait()


@program("waits")
def opens_a_fifo_without_another_end() -> None:
    """`open()` of a FIFO without another end."""
    path = scratch() / "fifo"
    os.mkfifo(path)
    path.open().read()


@program("polls")
def asks_an_http_server() -> None:
    """A health check once a second that is answered "not yet" for ever."""
    import http.client
    import http.server

    class NotYet(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(503)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), NotYet)
    code = (
        "import http.client,sys,time\nwhile True:\n"
        " c=http.client.HTTPConnection('127.0.0.1',int(sys.argv[1])); c.request('GET','/')\n"
        " c.getresponse().read(); c.close(); time.sleep(1)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(server.server_address[1])])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    del http.client, child

    def look() -> bool:
        client = socket.create_connection(server.server_address[:2])
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        while client.recv(4096):
            pass
        client.close()
        return False

    poll(1.0, look)


@program("polls")
def polls_an_asyncio_loop() -> None:
    """An event loop that sleeps a tenth of a second and looks again."""
    import asyncio

    async def wait() -> None:
        while not Path("/nonexistent/flag").exists():
            await asyncio.sleep(0.1)

    asyncio.run(wait())


@program("polls")
def polls_a_sqlite_table() -> None:
    """A row of a small database that never changes, asked for twice a second."""
    import sqlite3

    table = sqlite3.connect(scratch() / "jobs.db")
    table.execute("create table jobs (state text)")
    table.execute("insert into jobs values ('pending')")
    table.commit()
    poll(0.5, lambda: table.execute("select state from jobs").fetchone()[0] == "done")


if __name__ == "__main__":
    main()
