"""A rank that waits for an answer from outside the job is a link of the chain, and not blamed."""

from __future__ import annotations

from unhang.analysis import diagnose
from unhang.case import Case
from unhang.casedir.place import Place
from unhang.model import Frame, ProcessSample, ThreadStack
from unhang.report import Report
from unhang.reports.content.next_steps import next_steps
from unhang.stacks.formats.saved import dump_samples, parse

SITE = "/opt/venv/lib/python3.11/site-packages"
MODULE = Frame("<module>", "/home/user/train.py", 9)
WAITING = (Frame("all_reduce", f"{SITE}/torch/distributed/distributed_c10d.py", 3245), MODULE)
GENERATE = Frame("generate", "/home/user/rollout.py", 31)
SOCKET = (Frame("readinto", "/usr/lib/python3.11/socket.py", 706), GENERATE, MODULE)
REQUEST = (
    SOCKET[0],
    Frame("getresponse", "/usr/lib/python3.11/http/client.py", 1378),
    Frame("post", f"{SITE}/requests/api.py", 115),
    GENERATE,
    MODULE,
)
RAY = (
    Frame("get_objects", f"{SITE}/ray/_private/worker.py", 866),
    Frame("get", f"{SITE}/ray/_private/worker.py", 2691),
    GENERATE,
    MODULE,
)
ACCEPTS = (Frame("accept", "/usr/lib/python3.11/socket.py", 294), MODULE)
LOOP = (
    Frame("select", "/usr/lib/python3.11/selectors.py", 415),
    Frame("serve_forever", "/usr/lib/python3.11/socketserver.py", 235),
    Frame("<module>", "/home/user/server.py", 12),
)
ANSWER = (
    Frame("answer", "/home/user/server.py", 7),
    Frame("_bootstrap", "/usr/lib/python3.11/threading.py", 995),
)
ASKED = {"peer": "127.0.0.1:8000", "peer_pid": 900, "peer_command": "python server.py 8000"}


def sample(rank: int, *stacks: tuple[Frame, ...], **more: object) -> ProcessSample:
    """A process with one thread a stack, the main one first."""
    threads = tuple(
        ThreadStack(f"t{at}", 100 + at, frames, is_main=not at) for at, frames in enumerate(stacks)
    )
    told: dict[str, object] = {"host": "node01", "pid": 100 + rank, "state": "S"} | more
    return ProcessSample(rank, threads=threads, tool="py-spy", **told)  # type: ignore[arg-type]  # fields of ProcessSample


def verdict(asks: ProcessSample, *others: ProcessSample) -> Report:
    """Ranks 1 and 2 wait in all_reduce, and rank 0 is as given; two looks."""
    ranks = [asks, sample(1, WAITING), sample(2, WAITING), *others]
    twice = [parse(dump_samples([each])) for each in ranks for _ in range(2)]
    looks = [found for (found,) in twice]
    numbered = [
        ProcessSample(**{**{f: getattr(s, f) for f in s.__dataclass_fields__}, "sample": at % 2})
        for at, s in enumerate(looks)
    ]
    return diagnose(Case(samples=tuple(numbered)))


def test_a_rank_that_asks_a_server_is_not_blamed() -> None:
    """The address and the process that holds it are what to look at; the ranks all wait."""
    report = verdict(sample(0, REQUEST, **ASKED))
    (cause,) = report.causes
    assert (cause.code, cause.culprits, cause.victims) == ("UH101", (), (0, 1, 2))
    assert report.summary == (
        "Rank 0 waits for an answer of 127.0.0.1:8000 (pid 900: python server.py 8000); "
        "ranks 1-2 wait for rank 0 in all_reduce."
    )
    assert [(each.pid, each.host, each.role) for each in cause.subjects] == [
        (900, "node01", "culprit")
    ]
    assert {site.role for site in cause.sites} == {"victim"}
    assert report.decision is not None
    assert (report.decision.reason, report.decision.subjects[0].pid) == ("outside", 900)


def test_what_the_server_does_is_told_where_it_was_looked_at() -> None:
    """Its main thread takes requests: the thread that answers one says more."""
    server = sample(-1, LOOP, ANSWER, pid=900, role="server")
    report = verdict(sample(0, REQUEST, **ASKED), server)
    assert "which is in user code at answer (server.py:7) in a thread; ranks 1-2" in report.summary


def test_frames_of_a_client_are_enough() -> None:
    """A paste has no addresses: a library by which one asks a server tells of one."""
    report = verdict(sample(0, REQUEST))
    assert report.culprits == ()
    assert report.summary.startswith("Rank 0 waits for an answer of a server; ranks 1-2 wait")
    tasks = verdict(sample(0, RAY))
    assert tasks.culprits == ()
    assert tasks.summary.startswith("Rank 0 waits for an answer of tasks or actors of Ray; ")


def test_a_socket_whose_other_end_is_unknown_may_lead_to_a_rank() -> None:
    """The rank stays the one that others wait for, as does one that accepts."""
    assert verdict(sample(0, SOCKET)).culprits == (0,)
    assert verdict(sample(0, ACCEPTS, peer="127.0.0.1:8000")).culprits == (0,)


def test_a_connection_to_another_rank_leads_to_no_server() -> None:
    """It is said which rank that is."""
    report = verdict(sample(0, SOCKET, peer="127.0.0.1:8000", peer_pid=102))
    assert report.culprits == (0,)
    assert "for rank 2" in report.summary


def test_a_rank_that_is_stopped_waits_for_no_answer() -> None:
    """Whatever its frames show: it cannot read one."""
    assert verdict(sample(0, REQUEST, **{**ASKED, "state": "T"})).culprits == (0,)


def test_of_several_only_those_that_ask_are_links() -> None:
    """A rank that is elsewhere for a reason of its own is still named."""
    looping = (Frame("work", "/home/user/train.py", 70), MODULE)
    report = verdict(
        sample(0, REQUEST, **ASKED), sample(3, looping), sample(4, WAITING), sample(5, WAITING)
    )
    (cause,) = report.causes
    assert cause.culprits == (3,)
    assert 0 in cause.victims
    assert "Rank 0 waits for 127.0.0.1:8000 (pid 900: python server.py 8000)." in cause.evidence


def test_a_loader_that_reads_from_a_server_is_told_with_its_rank() -> None:
    """Its own code may be as much the reason: the rank is named, and so is the server."""
    loading = (SOCKET[0], Frame("Shards.__getitem__", "/home/user/data.py", 5))
    fetch = Frame("fetch", f"{SITE}/torch/utils/data/_utils/fetch.py", 52)
    report = verdict(sample(0, (*loading, fetch, MODULE), **ASKED))
    assert report.culprits == (0,)
    assert "for 127.0.0.1:8000 (pid 900: python server.py 8000)" in report.summary


def test_what_listens_on_another_node_may_be_a_rank() -> None:
    """It was not looked at: the verdict says so, and names the address to look at."""
    (cause,) = verdict(sample(0, SOCKET, peer="10.0.0.2:5000")).causes
    assert cause.culprits == ()
    told = "10.0.0.2:5000 was not looked at: it may be a rank on another node."
    assert told in cause.alternatives
    (seen,) = verdict(sample(0, REQUEST, **ASKED)).causes
    assert not any("another node" in each for each in seen.alternatives)


def test_the_process_that_is_asked_is_what_to_look_at_first() -> None:
    """By a command that runs as it stands, on its node."""
    steps = next_steps(verdict(sample(0, REQUEST, **ASKED)), None, Place())
    assert steps[0].command == "unhang stacks --pid 900"
    assert steps[0].why.startswith("on node01, while it lives")
