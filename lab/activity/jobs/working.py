"""Programs that get on."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
import time
import zlib

from common import forever, main, program, scratch, work_for


@program("works")
def computes() -> None:
    """Plain computation: preprocessing, a tokenizer, a large sort."""
    forever(lambda: work_for(0.2))


@program("works")
def computes_in_threads() -> None:
    """Native code that lets go of the GIL, in threads, while the main thread waits for them."""
    data = os.urandom(1 << 22)
    for _ in range(2):
        threading.Thread(
            target=forever, args=(lambda: zlib.compress(data, 9),), daemon=True
        ).start()
    threading.Event().wait()


@program("works")
def small_batches_with_sleeps() -> None:
    """An evaluation of small batches, with a pause between any two."""

    def turn() -> None:
        work_for(0.003)
        time.sleep(0.1)

    forever(turn)


@program("works")
def rare_batches() -> None:
    """One batch every two seconds: a slow source of data."""

    def turn() -> None:
        work_for(0.02)
        time.sleep(2.0)

    forever(turn)


@program("works")
def writes_a_checkpoint() -> None:
    """Writes a large file and syncs it."""
    path, block = scratch() / "model.pt", os.urandom(1 << 20)

    def turn() -> None:
        with path.open("wb") as file:
            for _ in range(64):
                file.write(block)
            os.fsync(file.fileno())

    forever(turn)


@program("works")
def writes_slowly() -> None:
    """A checkpoint onto storage that takes 24 KB/s, in pieces."""
    file = (scratch() / "model.pt").open("wb")

    def turn() -> None:
        file.write(os.urandom(24_000))
        file.flush()
        os.fsync(file.fileno())
        time.sleep(1.0)

    forever(turn)


@program("works")
def reads_files() -> None:
    """Reads many files, as an index of a data set is made."""
    folder = scratch()
    for number in range(200):
        (folder / f"{number}.bin").write_bytes(os.urandom(20_000))

    def turn() -> None:
        for path in folder.iterdir():
            zlib.crc32(path.read_bytes())
            time.sleep(0.01)

    forever(turn)


@program("works")
def fed_by_a_pipe() -> None:
    """Data that come through a pipe from a child which fetches them slowly."""
    code = "import os,time\nwhile True:\n os.write(1, b'x'*2000); time.sleep(0.7)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    out = child.stdout.fileno()
    forever(lambda: os.read(out, 2000))


@program("works")
def fed_by_tcp() -> None:
    """A download that trickles: 20 KB/s over TCP."""
    server = socket.create_server(("127.0.0.1", 0))
    code = (
        "import socket,sys,time\ns=socket.create_connection(('127.0.0.1',int(sys.argv[1])))\n"
        "while True:\n s.sendall(b'x'*5000); time.sleep(0.25)"
    )
    subprocess.Popen([sys.executable, "-c", code, str(server.getsockname()[1])])
    peer, _ = server.accept()
    forever(lambda: peer.recv(1 << 16))


@program("works")
def child_computes() -> None:
    """`subprocess.run` of something that takes long: a compiler, a converter."""
    code = "import hashlib\nd=b'x'*4096\nwhile True: d=hashlib.sha256(d).digest()*128"
    subprocess.run([sys.executable, "-c", code], check=False)


@program("works")
def starts_many_children() -> None:
    """A compilation: many short processes, one after the other."""
    forever(lambda: subprocess.run([sys.executable, "-S", "-c", "sum(range(200000))"], check=False))


@program("works")
def workers_compute() -> None:
    """A data loader: two workers compute, the main process waits for a batch from each."""
    code = (
        "import os,time,zlib\nd=os.urandom(1<<18)\n"
        "while True:\n zlib.compress(d, 9); os.write(1, b'x'*4096); time.sleep(0.3)"
    )
    workers = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(2)
    ]
    outs = [worker.stdout.fileno() for worker in workers if worker.stdout is not None]
    forever(lambda: [os.read(out, 4096) for out in outs])


@program("works")
def retries_and_says_so() -> None:
    """Tries again every three seconds, and prints each time."""

    def turn() -> None:
        print("still no answer, trying again", flush=True)
        time.sleep(3.0)

    forever(turn)


@program("works")
def prints_a_progress_bar() -> None:
    """A progress bar over slow items."""

    def turn() -> None:
        work_for(0.002)
        sys.stderr.write("\r 42%|####      | 12/30")
        sys.stderr.flush()
        time.sleep(1.0)

    forever(turn)


@program("works")
def sorts_in_memory() -> None:
    """Page faults and computation: a shuffle of a large index."""
    numbers = list(range(1_000_000))
    forever(lambda: random.shuffle(numbers))


@program("works")
def maps_a_file() -> None:
    """Reads through a memory map: weights that are loaded, in no counter of reads."""
    import mmap

    path = scratch() / "weights"
    path.write_bytes(os.urandom(1 << 24))
    with path.open("rb") as file:
        view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

        def turn() -> None:
            zlib.crc32(view[: 1 << 22])
            time.sleep(0.2)

        forever(turn)


@program("works")
def copies_files() -> None:
    """A data set that is copied to the local disk."""
    import shutil

    folder = scratch()
    (folder / "a").write_bytes(os.urandom(1 << 22))

    def turn() -> None:
        shutil.copy(folder / "a", folder / "b")
        time.sleep(0.5)

    forever(turn)


@program("works")
def unpacks_an_archive() -> None:
    """An archive that is decompressed in one long call after the other."""
    packed = zlib.compress(b"some text of a corpus, again and again; " * 200_000)
    forever(lambda: zlib.decompress(packed))


@program("works")
def evaluates_with_long_pauses() -> None:
    """A batch of 5 ms each four seconds: an evaluation that waits for a service."""

    def turn() -> None:
        work_for(0.005)
        time.sleep(4.0)

    forever(turn)


@program("works")
def answers_requests() -> None:
    """A small server that is asked ten times a second."""
    server = socket.create_server(("127.0.0.1", 0))
    code = (
        "import socket,sys,time\ns=socket.create_connection(('127.0.0.1',int(sys.argv[1])))\n"
        "while True:\n s.sendall(b'x'*900); s.recv(4096); time.sleep(0.1)"
    )
    subprocess.Popen([sys.executable, "-c", code, str(server.getsockname()[1])])
    peer, _ = server.accept()

    def turn() -> None:
        peer.recv(4096)
        work_for(0.001)
        peer.sendall(b"y" * 2000)

    forever(turn)


@program("works")
def logs_each_batch() -> None:
    """Writes a line of a log for each batch, and computes little."""
    file = (scratch() / "train.log").open("w")

    def turn() -> None:
        work_for(0.004)
        file.write("step loss 0.123\n" * 3)
        file.flush()
        time.sleep(0.5)

    forever(turn)


@program("works")
def thread_computes_while_joined() -> None:
    """`thread.join()` of a thread that computes: an asynchronous checkpoint that is large."""
    data = os.urandom(1 << 22)
    thread = threading.Thread(target=forever, args=(lambda: zlib.compress(data, 9),), daemon=True)
    thread.start()
    thread.join()


if __name__ == "__main__":
    main()
