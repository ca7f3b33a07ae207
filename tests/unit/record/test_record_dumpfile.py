"""Dump files: what is in them, where they go, and that nothing is ever overwritten."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import tempfile
import weakref
from pathlib import Path
from typing import Any

import pytest

from unhang import bounds
from unhang.record.calls.recorder import Recorder
from unhang.record.calls.ring import Channel, Ring, RingEntry
from unhang.record.contact.beat import Beat
from unhang.record.dumps import dumpfile, taking, torchfr
from unhang.record.dumps.dumpfile import DumpDraft
from unhang.record.dumps.taking import END, take
from unhang.record.dumps.torchfr import TorchRecorder, load_plain
from unhang.record.process import ArmedProcess, GroupFact
from unhang.record.settings import Settings


class Thing:
    """Anything that a weak reference can point to."""


GROUP = Thing()
WORLD = ("0", "default_pg")


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Rank 3 of 4, with a Gloo group, and a place for its dumps."""
    for name in ("TORCHELASTIC_RESTART_COUNT", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    settings = Settings(directory=str(tmp_path / "cases"), keep=3)
    state = ArmedProcess(settings, os.getpid(), Beat(None, pid=1, start_ticks=1), Ring(10))
    state.job_id, state.rank, state.world_size = "job", 3, 4
    state.directory = tmp_path / "runtime"
    state.directory.mkdir()
    state.groups["0", "default_pg", (0, 1, 2, 3)] = GroupFact(
        "0", "default_pg", (0, 1, 2, 3), "gloo", 1000
    )
    return Recorder(state)


def torch_has(monkeypatch: pytest.MonkeyPatch, *dumps: dict[str, Any]) -> None:
    """Let torch's Gloo recorder give these dumps, one at each question, the last one for ever."""
    left = [pickle.dumps(dump, protocol=2) for dump in dumps]

    def answer(_collectives: bool, _stacks: bool, _active: bool) -> bytes:  # noqa: FBT001 - torch's
        return left.pop(0) if len(left) > 1 else left[0]

    source = TorchRecorder("gloo", answer, None)
    monkeypatch.setattr(dumpfile, "recorders", lambda *_: [source])


def torch_entry(number: int, seq: int, created_ns: int, **more: object) -> dict[str, Any]:
    """An entry of torch's."""
    return {
        "record_id": number, "pg_id": 5, "process_group": WORLD, "collective_seq_id": seq,
        "time_created_ns": created_ns, "retired": True, **more,
    }  # fmt: skip


def own_entry(recorder: Recorder, name: str, created_ns: int, *, p2p: bool) -> RingEntry:
    """An entry of our own ring."""
    channel = Channel(weakref.ref(GROUP), *WORLD, "gloo", {"cpu": "gloo"}, 3, 1000, 0)
    entry = RingEntry(channel, name, ((), ()), (), 1, created_ns)
    entry.is_p2p = p2p
    recorder.state.ring.append(entry)
    return entry


def read(path: Path) -> dict[str, Any]:
    """A dump file."""
    return load_plain(path.read_bytes())


# ------------------------------------------------------------------ content


def test_what_torch_lacks_is_added(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """True groups, identity, our entries in their places; torch's entries stay as they are."""
    entries = [torch_entry(7, 1, 100, op_id=2), torch_entry(8, 4, 300, op_id=8)]
    torch_has(monkeypatch, {"version": "2.10", "pg_config": {"": {}}, "entries": entries})
    own_entry(recorder, "gloo:send 3->0", 50, p2p=True)
    own_entry(recorder, "gloo:recv 3<-0", 200, p2p=True)
    own_entry(recorder, "gloo:monitored_barrier", 250, p2p=False)
    own_entry(recorder, "gloo:send 3->0", 400, p2p=True)
    own_entry(recorder, "mpi:send 3->0", 400, p2p=True)
    (dump,) = dumpfile.collect(recorder)
    assert dump.content["entries"] == entries
    assert dump.content["pg_config"] == {
        "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}
    }
    extra = dump.content["unhang"]
    assert [
        (row["after_record_id"], row["collective_seq_id"], row["pg_id"]) for row in extra["entries"]
    ] == [(-1, 0, 5), (7, 1, 5), (7, 2, 5), (8, 4, 5)]
    assert [row["op_id"] for row in extra["entries"]] == [-1, 3, 4, 9], "7: others came before"
    assert (extra["rank"], extra["world_size"], extra["job_id"], extra["schema"]) == (
        3, 4, "job", "unhang.dump/1",
    )  # fmt: skip
    assert extra["stacks"]["main"][0]["name"] == "test_what_torch_lacks_is_added"


@pytest.mark.parametrize("by_torch", [True, False])
def test_tags_of_open_sends_and_receives(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, *, by_torch: bool
) -> None:
    """Of this backend and of nothing that has ended well; of many the newest."""
    if by_torch:
        torch_has(monkeypatch, {"version": "2.10", "pg_config": {}, "entries": []})
    else:
        monkeypatch.setattr(dumpfile, "recorders", lambda *_: [])
    assert dumpfile.MOST_OPEN_TAGS == bounds.MOST_OPEN_TAGS
    monkeypatch.setattr(dumpfile, "MOST_OPEN_TAGS", 2)
    for tag, name in enumerate(("send 3->0", "send 3->0", "recv 3<-0", "recv 3<-0", "recv 3<-1")):
        own_entry(recorder, f"gloo:{name}", 100 + tag, p2p=True).tag = tag
    own_entry(recorder, "gloo:monitored_barrier", 200, p2p=False)
    own_entry(recorder, "mpi:send 3->0", 300, p2p=True)
    ended, left = recorder.state.ring.entries()[2:4]
    ended.completed(500)
    left.abandon()
    (dump,) = dumpfile.collect(recorder)
    assert dump.content["unhang"]["open_tags"] == [[1, 1], [4, 4]]
    recorder.state.ring.entries()[1].failed(RuntimeError("timed out"), 600)
    (dump,) = dumpfile.collect(recorder)
    assert dump.content["unhang"]["open_tags"] == [[1, 1], [4, 4]], "it is none that was let go of"


def test_counters_alone(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without entries there are none of ours either."""
    torch_has(monkeypatch, {"version": "2.10", "pg_status": {"0": {}}})
    own_entry(recorder, "gloo:send 3->0", 50, p2p=True)
    (dump,) = dumpfile.collect(recorder, collectives=False)
    assert ("entries" in dump.content, dump.content["unhang"]["entries"]) == (False, [])


def test_a_recorder_of_torch_s_that_fails_is_a_problem(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours is still written."""

    def broken(*_: bool) -> bytes:
        raise RuntimeError("out of order")

    monkeypatch.setattr(dumpfile, "recorders", lambda *_: [TorchRecorder("gloo", broken, None)])
    (dump,) = dumpfile.collect(recorder)
    assert dump.content["unhang"]["problems"] == [
        "torch's gloo recorder: RuntimeError: out of order"
    ]


def test_dumps_without_names_of_groups_keep_their_table(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch 2.3 has local ids, and says itself what they mean."""
    row = {"record_id": 1, "pg_id": 0, "seq_id": 1, "time_created_ns": 10, "retired": True}
    torch_has(monkeypatch, {"version": "1.4", "pg_config": {0: [0, 1]}, "entries": [row]})
    (dump,) = dumpfile.collect(recorder)
    assert (dump.content["pg_config"], dump.content["entries"]) == ({0: [0, 1]}, [row])


def test_stacks_come_later_and_states_stay(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was seen hanging is not called retired because the time-out came meanwhile."""
    frames = [{"name": "f", "filename": "t.py", "line": 1}]
    torch_has(
        monkeypatch,
        {"entries": [torch_entry(1, 1, 10, retired=False)]},
        {"entries": [torch_entry(1, 1, 10, retired=True, frames=frames)]},
    )
    incident = take(recorder, "hang", incident="x")
    (path,) = incident.files
    assert "frames" not in read(path)["entries"][0]
    incident.add_stacks(recorder)
    assert read(path)["entries"] == [torch_entry(1, 1, 10, retired=False, frames=frames)]


@pytest.mark.parametrize("data", [b"", b"\x80", pickle.dumps(3), pickle.dumps(Thing), b"}" * 9])
def test_bytes_that_are_no_dump_are_refused(data: bytes) -> None:
    """And nothing that they name is ever imported."""
    with pytest.raises(ValueError, match="no dump"):
        load_plain(data)


def test_counters_are_read_from_torch_s_json() -> None:
    """They are texts there, and -1 where there is none."""
    text = b'{"pg_status": {"10": {"last_enqueued_collective": "4"}, "2": {}}}'
    beats = torchfr.counters(TorchRecorder("gloo", lambda *_: b"", lambda *_: text))
    assert [(b.pg_id, b.last_enqueued, b.last_completed) for b in beats] == [
        (2, -1, -1),
        (10, 4, -1),
    ]


# ------------------------------------------------------------------ places


def test_an_incident_is_a_case(recorder: Recorder, tmp_path: Path) -> None:
    """Named after job, attempt and incident; the file says so too."""
    (path,) = take(recorder, "api").files
    assert path == tmp_path / "cases" / "job-a0-api-1" / "dumps" / "gloo" / "rank_3"
    extra = read(path)["unhang"]
    assert (extra["incident"], extra["reason"]) == ("job-a0-api-1", "api")
    assert list(tmp_path.rglob("*.part")) == []


def test_nothing_is_overwritten(recorder: Recorder, tmp_path: Path) -> None:
    """The same incident again goes beside the first."""
    for _ in range(3):
        take(recorder, "hang", incident="x")
    names = sorted(path.name for path in (tmp_path / "cases").iterdir())
    assert names == ["job-a0-x", "job-a0-x.2", "job-a0-x.3"]


def test_incidents_are_limited_but_the_last_one(recorder: Recorder, tmp_path: Path) -> None:
    """A script that asks every minute does not fill the disk; the end is always written."""
    for _ in range(5):
        take(recorder, "asked", incident="x")
    refused = take(recorder, "asked", incident="x")
    assert refused.files == []
    assert "3 incidents are kept already" in refused.failures[-1].split(" (")[0]
    assert len(take(recorder, "exception", incident=END).files) == 1
    assert len(list((tmp_path / "cases").iterdir())) == 4


def test_a_place_that_fails_gives_way_to_the_next(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk: the runtime directory takes it, and the file says why it is there."""
    real = os.fsync
    full = str(tmp_path / "cases")

    def fsync(handle: int) -> None:
        if str(Path(f"/proc/self/fd/{handle}").readlink()).startswith(full):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    (path,) = take(recorder, "api").files
    assert path.is_relative_to(tmp_path / "runtime" / "cases")
    (problem,) = read(path)["unhang"]["problems"]
    assert "No space left on device" in problem
    assert list((tmp_path / "cases").rglob("*rank*")) == []


def test_no_place_at_all_is_said(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """No exception: the caller learns that there is no file, and why."""

    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    incident = take(recorder, "api")
    assert incident.files == []
    assert len(incident.failures) == 2


def test_file_systems_without_hard_links(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking first must do there."""

    def no_links(self: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", str(self), None, str(target))

    monkeypatch.setattr(Path, "hardlink_to", no_links)
    for _ in range(2):
        take(recorder, "hang", incident="x")
    names = sorted(path.name for path in (tmp_path / "cases").iterdir())
    assert names == ["job-a0-x", "job-a0-x.2"]


def test_a_process_without_a_rank_is_named_by_its_pid(recorder: Recorder) -> None:
    """It must not stand where a rank would."""
    recorder.state.rank = None
    (path,) = take(recorder, "api").files
    assert path.name == f"rank_pid{os.getpid()}"


def test_every_reason_is_documented() -> None:
    """docs/recorder.md has the whole set."""
    text = (Path(__file__).parents[3] / "docs" / "recorder.md").read_text(encoding="utf-8")
    assert [reason for reason in taking.REASONS if f"`{reason}`" not in text] == []


def test_dumps_are_small_values_only(recorder: Recorder) -> None:
    """What is written can be read without importing anything, by anybody."""
    (dump,) = dumpfile.collect(recorder)
    assert isinstance(dump, DumpDraft)
    assert load_plain(dumpfile.encode(dump.content)) == dump.content


STEPS = {
    "the temporary file": (tempfile, "mkstemp"),
    "writing to disk": (os, "fsync"),
    "the name": (dumpfile, "_name"),
    "the name on disk": (dumpfile, "_sync_directory"),
}


def die_at(step: str, *, after: bool) -> None:
    """Let this process be killed as by SIGKILL before or after a step."""
    owner, name = STEPS[step]
    original = getattr(owner, name)

    def deadly(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever it takes
        if after:
            original(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, deadly)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("again", [False, True])
def test_a_rank_killed_while_it_writes_leaves_a_whole_dump_or_none(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, step: str, *, after: bool, again: bool
) -> None:
    """At each step, also of writing it again with stacks: a name stands for a whole file."""
    entry = {"record_id": 0, "process_group": WORLD, "pg_id": 0}
    torch_has(monkeypatch, {"version": "2.10", "entries": [entry] * 500})
    pid = os.fork()
    if pid == 0:
        try:
            if again:
                incident = take(recorder, "api")
                die_at(step, after=after)
                dumpfile.rewrite(incident.dumps[0])
            else:
                die_at(step, after=after)
                take(recorder, "api")
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    replaced = again and step == "the name"
    assert os.waitstatus_to_exitcode(status) == (0 if replaced else -signal.SIGKILL)
    left = [path for path in recorder.state.cases.rglob("*") if path.is_file()]
    names = [path for path in left if path.name == "rank_3"]
    named_before = again or step == "the name on disk" or (step == "the name" and after)
    assert len(names) == int(named_before)
    for path in names:
        assert len(load_plain(path.read_bytes())["entries"]) == 500
    assert all(
        path.name.startswith(".") and path.suffix == ".part" for path in set(left) - {*names}
    )
