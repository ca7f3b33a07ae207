"""Parts: what a node's dumps come down to gives the same rows and the same verdict, or says why."""

from __future__ import annotations

import pickle
import stat
import zlib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from support.makedumps import dump, entry, write
from support.parts import differences, folders_of_dumps, parts_of, verdict_of

from lab.simulate.corpus import CaseSpec, spec_named
from lab.simulate.writing import DUMPS, simulate
from unhang.analysis import diagnose
from unhang.case import Calls, Case
from unhang.cli.main import main
from unhang.errors import NoEvidenceError, OutputError
from unhang.ingest import load
from unhang.ingest.parts import filling, layout, writing
from unhang.ingest.parts.layout import BadPart, Part, pack, unpack
from unhang.ingest.reducing import reduce
from unhang.model import Frame
from unhang.redact import Redactor

ROOT = Path(__file__).parents[3]
CAPTURES = [
    *folders_of_dumps(ROOT / "examples"),
    *folders_of_dumps(ROOT / "tests" / "data" / "nccl"),
    *folders_of_dumps(ROOT / "tests" / "data" / "gloo_2.13"),
]
SIMULATED = tuple(
    f"tuned/{name}"
    for name in ("skipped-call-3", "pipeline-stall-2", "late-rank-1", "healthy-in-flight-0",
                 "membership-1", "crossed-groups-2")
)  # fmt: skip
"""A sample; `make parts` takes the whole corpus."""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of dumps of simulated jobs."""
    made = {}
    for name in SIMULATED:
        folder = tmp_path_factory.mktemp("case")
        simulate(spec_named(name), folder)
        made[name] = folder / DUMPS
    return made


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have few calls taken for too many."""
    monkeypatch.setattr(filling, "MOST_ROWS", 0)
    monkeypatch.setattr(filling, "KEPT", 2)
    monkeypatch.setattr(filling, "FIRST", 0)


def columns(case: Case) -> dict[str, list[Any]]:
    """All calls, with what they point at."""
    calls = case.calls
    found = {each.name: getattr(calls, each.name).tolist() for each in fields(Calls)}
    found["name"] = [case.names[at].raw for at in found["name"]]
    found["signature"] = [case.signatures[at] for at in found["signature"]]
    found["stack"] = [case.stacks[at] for at in found["stack"]]
    found["thread"] = [case.threads[at] if at >= 0 else "" for at in found["thread"]]
    found["group"] = [case.groups[at] for at in found["group"]]
    found["duration_ms"] = [repr(each) for each in found["duration_ms"]]
    return found


@pytest.mark.parametrize("folder", CAPTURES, ids=lambda path: "/".join(path.parts[-2:]))
def test_a_part_of_a_capture_gives_the_same_report_to_the_byte(
    folder: Path, tmp_path: Path
) -> None:
    """Of everything that was ever captured here."""
    whole = verdict_of([folder])
    if whole.startswith("{"):
        parts = parts_of([folder], 1, tmp_path, all_times=False)
        assert verdict_of(parts) == whole


@pytest.mark.parametrize("name", SIMULATED)
@pytest.mark.parametrize("room", [0, 512])
def test_parts_of_several_nodes_give_the_same_verdict(
    name: str,
    room: int,
    simulated: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where there is no room for times, and where some ranks come as dumps."""
    monkeypatch.setattr(writing, "ROOM_FOR_TIMES", room)
    dumps = sorted(simulated[name].iterdir())
    kept = dumps[:2]
    parts = parts_of([each for each in dumps if each not in kept], 3, tmp_path, all_times=False)
    found = list(differences(verdict_of([simulated[name]]), verdict_of([*kept, *parts])))
    assert found == []


@pytest.mark.parametrize("name", SIMULATED)
def test_windows_of_a_job_with_too_many_calls_give_the_same_verdict(
    name: str, simulated: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last calls of each group, and all calls of ranks about which the rules ask."""
    parts = parts_of(sorted(simulated[name].iterdir()), 3, tmp_path, all_times=False)
    shorten(monkeypatch)
    case = load(parts)
    assert case.more is not None
    found = list(differences(verdict_of([simulated[name]]), verdict_of(parts)))
    assert found == []


def exchanging(folder: Path, **more: object) -> Path:
    """Dumps of two ranks of ours that have posted an exchange, each under its own tag."""
    for rank in (0, 1):
        calls = [f"gloo:send {rank}->{1 - rank}", f"gloo:recv {rank}<-{1 - rank}"]
        ours = [
            {**entry(number, profiling_name=name, state="started", retired=False, is_p2p=True,
                     time_discovered_completed_ns=None, p2p_seq_id=number + 1),
             "after_record_id": 0}
            for number, name in enumerate(calls)
        ]  # fmt: skip
        tags = [[number, 15 + rank] for number in range(len(ours))]
        extra = {"rank": rank, "backend": "gloo", "entries": ours, "open_tags": tags, **more}
        torchs = [entry(0, profiling_name="gloo:all_reduce")]
        write(folder, {f"rank_{rank}": dump(torchs, ranks=2, unhang=extra)})
    return folder


@pytest.mark.parametrize("n_parts", [1, 2])
def test_tags_of_open_calls_come_with_a_part(n_parts: int, tmp_path: Path) -> None:
    """The verdict rests on them."""
    folder = exchanging(tmp_path / "dumps")
    parts = parts_of(sorted(folder.iterdir()), n_parts, tmp_path, all_times=False)
    assert [dump.open_tags for dump in load(parts).dumps] == [
        ((0, 15), (1, 15)),
        ((0, 16), (1, 16)),
    ]
    assert "disagree about the tag: 15 and 16" in verdict_of([folder])
    assert [*differences(verdict_of([folder]), verdict_of(parts))] == []


def test_parts_without_tags_are_read(tmp_path: Path) -> None:
    """An earlier version wrote none."""
    part = unpack(reduce([exchanging(tmp_path / "dumps")]).data)
    plain = msgspec.to_builtins(part, builtin_types=(bytes,))
    for told in plain[place_of("dumps", Part)]:
        del told[place_of("origin", layout.PartDump)]["open_tags"]
    (tmp_path / "old.part").write_bytes(
        layout.PART_MAGIC + zlib.compress(msgspec.msgpack.encode(plain))
    )
    case = load([tmp_path / "old.part"])
    assert [dump.open_tags for dump in case.dumps] == [None, None]
    assert [cause.code for cause in diagnose(case).causes] == ["UH401"]


def place_of(field: str, of: type[msgspec.Struct]) -> int:
    """Where a field stands in what is written as a list."""
    return of.__struct_fields__.index(field)


def test_a_part_whose_tags_are_beyond_64_bits_is_left_out(tmp_path: Path) -> None:
    """As with its other numbers."""
    part = unpack(reduce([exchanging(tmp_path / "dumps")]).data)
    first = part.dumps[0]
    assert first.origin is not None
    origin = replace(first.origin, open_tags=((1, 2**64 - 1),))
    spoilt_dumps = [msgspec.structs.replace(first, origin=origin), *part.dumps[1:]]
    (tmp_path / "good.part").write_bytes(reduce([tmp_path / "dumps"]).data)
    (tmp_path / "bad.part").write_bytes(pack(spoilt(part, dumps=spoilt_dumps)))
    notes = [note.text for note in load([tmp_path / "good.part", tmp_path / "bad.part"]).notes]
    assert any("beyond 64 bits" in text for text in notes), notes


def test_what_cannot_be_compared_is_said(
    simulated: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where more calls would be too many, a note names the ranks."""
    parts = parts_of([simulated["tuned/skipped-call-3"]], 1, tmp_path, all_times=False)
    shorten(monkeypatch)
    case = replace(load(parts), more=lambda _ranks: None)
    notes = [note.text for note in diagnose(case).notes]
    assert any("were not compared with their peers'" in text for text in notes), notes


def test_windows_stay_without_names(
    simulated: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read again for a verdict goes through the same redaction."""
    parts = parts_of([simulated["tuned/skipped-call-3"]], 1, tmp_path, all_times=False)
    shorten(monkeypatch)
    case = Redactor().case(load(parts))
    redacted: list[Case] = []
    monkeypatch.setattr(Redactor, "case", lambda _self, more: redacted.append(more) or more)
    assert case.more is not None
    assert case.more({0}) is redacted[0]


def test_rows_come_back_as_they_were(simulated: dict[str, Path], tmp_path: Path) -> None:
    """Every column of every call, with all times."""
    folder = simulated["tuned/pipeline-stall-2"]
    part = parts_of([folder], 1, tmp_path, all_times=True)
    whole, again = load(folder), load(part)
    assert columns(again) == columns(whole)
    assert [(d.rank, d.start, d.stop, d.group_ids) for d in again.dumps] == [
        (d.rank, d.start, d.stop, d.group_ids) for d in whole.dumps
    ]


def test_parts_can_be_reduced_again(simulated: dict[str, Path], tmp_path: Path) -> None:
    """Parts of nodes become one of a rack."""
    folder = simulated["tuned/skipped-call-3"]
    parts = parts_of(sorted(folder.iterdir()), 2, tmp_path, all_times=False)
    (tmp_path / "rack.part").write_bytes(reduce(parts).data)
    assert not [*differences(verdict_of([folder]), verdict_of([tmp_path / "rack.part"]))]


def test_what_came_without_times_is_not_called_healthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow job and a healthy one look alike without the times of most calls."""
    monkeypatch.setattr(writing, "ROOM_FOR_TIMES", 0)
    spec = CaseSpec("late", "late-rank", "ddp", 4, "plain", 0)
    simulate(spec, tmp_path / "case")
    found = reduce([tmp_path / "case" / DUMPS])
    (tmp_path / "node.part").write_bytes(found.data)
    assert found.few_times
    verdict = msgspec.json.decode(verdict_of([tmp_path / "node.part"]))
    assert verdict["status"] == "insufficient"
    assert "times of most calls" in verdict["summary"]
    assert any("--times" in note["text"] for note in verdict["notes"])


def test_odd_texts_and_numbers_survive(tmp_path: Path) -> None:
    """Half a surrogate in a path and in what our recorder wrote, and numbers beyond 64 bits."""
    frames = [{"name": "f", "filename": "/a/\ud800.py", "line": 10**25}]
    odd = entry(1, frames=frames, input_sizes=[[10**30, 2]])
    ours = {"rank": 0, "host": "h\ud804", "stacks": {"main": [{**frames[0], "line": 2**63}]}}
    content = {**dump([odd]), "unhang": ours}
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps(content, 2))
    part = parts_of([tmp_path / "nccl_trace_rank_0"], 1, tmp_path, all_times=False)
    case = load(part)
    assert case.stacks[0][0].file == "/a/\\ud800.py"
    assert case.dumps[0].host == "h\\ud804"
    assert case.dumps[0].main_stack == (Frame("f", "/a/\\ud800.py", 2**63 - 1),)
    assert case.signatures[0].input_sizes[0][1] == 2


def made(tmp_path: Path, calls: int = 5) -> Part:
    """A small part."""
    write(tmp_path, {"nccl_trace_rank_0": dump(calls)})
    return unpack(reduce([tmp_path / "nccl_trace_rank_0"]).data)


def spoilt(part: Part, **changes: object) -> Part:
    """A part with other fields."""
    return msgspec.structs.replace(part, **changes)


def test_every_byte_of_a_part_may_be_wrong(tmp_path: Path) -> None:
    """A note, never an exception, and never rows that nobody recorded in memory without end."""
    rng = np.random.default_rng(0)
    data = msgspec.msgpack.encode(made(tmp_path))
    head = writing.pack(made(tmp_path)).partition(b"\n")[0] + b"\n"
    for _ in range(150):
        wrong = bytearray(data)
        for at in rng.integers(0, len(data), rng.integers(1, 4)):
            wrong[at] = rng.integers(0, 256)
        (tmp_path / "node.part").write_bytes(head + zlib.compress(bytes(wrong)))
        verdict_of([tmp_path / "node.part"])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"programs": [b"\xff\xff"]}, "kind of call that is not there"),
        ({"programs": [b"\x00"]}, "not whole"),
        ({"programs": []}, "calls that are not there"),
        ({"groups": []}, "group that is not there"),
        ({"times": [b""] * 4}, "times are not whole"),
        ({"members": [[(0, 1, 1 << 40)]]}, "more members of groups"),
        ({"dictionary": b"\x90"}, "not the shape"),
    ],
)
def test_a_part_that_lies_is_left_out_with_a_note(
    changes: dict[str, object], why: str, tmp_path: Path
) -> None:
    """It says what is wrong with it."""
    part = made(tmp_path)
    good, bad = tmp_path / "a.part", tmp_path / "b.part"
    good.write_bytes(pack(part))
    bad.write_bytes(pack(spoilt(part, **changes)))
    notes = [note.text for note in load([good, bad]).notes]
    assert any(why in text for text in notes), notes


def test_whatever_is_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls in lockstep shrink below what a reader takes for honest: the file is made as long."""
    monkeypatch.setattr(layout, "ALWAYS_READ", 1 << 10)
    monkeypatch.setattr(layout, "MAX_RATIO", 2)
    part = made(tmp_path, calls=500)
    assert unpack(pack(part)) == part
    monkeypatch.setattr(layout, "MAX_FILE_BYTES", 1 << 10)
    with pytest.raises(OutputError, match="readers take"):
        pack(part)


def test_times_that_no_reader_would_take_are_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However well they shrink, those of the calls that matter are kept alone."""
    monkeypatch.setattr(writing, "ALWAYS_READ", 1 << 10)
    assert any(dump.few_times for dump in made(tmp_path, calls=500).dumps)


def test_a_bomb_is_not_unpacked() -> None:
    """Little that unpacks to more than an honest part is refused before it is unpacked."""
    bomb = layout.PART_MAGIC + zlib.compress(b"\x00" * (80 << 20), 9)
    with pytest.raises(BadPart, match="too large"):
        unpack(bomb)
    with pytest.raises(BadPart, match="cut short"):
        unpack(bomb[:100])
    with pytest.raises(BadPart, match="another version"):
        unpack(bomb.replace(b"/1\n", b"/9\n", 1))


def test_the_command_writes_a_private_file_and_says_what_it_did(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """0600 whatever the umask, whole or not at all."""
    write(tmp_path, {"nccl_trace_rank_0": dump(5)})
    target = tmp_path / "node.part"
    assert main(["reduce", str(tmp_path), "-o", str(target)]) == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert "1 dump: " in capfd.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"nccl_trace_rank_0", "node.part"}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nowhere", "-o", "x.part"], 3, "nowhere does not exist"),
        (["{here}/empty", "-o", "{here}/x.part"], 3, "there is no dump to reduce"),
        (["{here}/dumps", "-o", "{here}"], 2, "is a directory"),
        (["{here}/dumps", "-o", "{here}/no/x.part"], 2, "cannot be written"),
        (["{here}/dumps", "-o", "{here}/dumps/nccl_trace_rank_0"], 2, "exists and is input"),
    ],
)
def test_the_command_says_what_is_wrong(
    arguments: list[str], code: int, says: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One sentence and a hint."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "dumps").mkdir()
    write(tmp_path / "dumps", {"nccl_trace_rank_0": dump(1)})
    assert main(["reduce", *(each.format(here=tmp_path) for each in arguments)]) == code
    assert says in capfd.readouterr().err


def test_nothing_to_reduce_is_an_error(tmp_path: Path) -> None:
    """Not an empty part."""
    (tmp_path / "readme").write_bytes(pickle.dumps({"no": "dump"}))
    with pytest.raises(NoEvidenceError):
        reduce([tmp_path])
