"""What an engine's tasks do, without the engine: list a store, reduce a share; and what it refuses.

The engine itself is tested with a real cluster, in tests/integration/test_ray.py.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from support.makedumps import dump, write

from unhang.cli.main import main
from unhang.errors import InputError, MissingExtraError, ToolError
from unhang.ingest import load
from unhang.ingest.discover.sources import Inputs, Source, find_inputs
from unhang.ingest.discover.storage import copied, listed
from unhang.ingest.handed import NamedBytes
from unhang.ingest.loading import Elsewhere
from unhang.ingest.ray import ray_engine
from unhang.ingest.tasks import listing_of, look, reduced_share


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """Dumps of two ranks, and files that are none."""
    files: dict[str, Any] = {f"nccl_trace_rank_{rank}": dump(3) for rank in range(2)}
    files |= {"nccl_trace_rank_2": b"\x80\x04torn", "notes": b"none", "train.log": b"step 1"}
    return write(tmp_path / "run 7", files)


@pytest.fixture
def store(dumps: Path) -> Iterator[str]:
    """The same files in a store."""
    memory = fsspec.filesystem("memory")
    for path in dumps.iterdir():
        memory.pipe(f"/bucket/run 7/{path.name}", path.read_bytes())
    yield "memory://bucket/run 7"
    memory.rm("/bucket", recursive=True)


def parts(*files: tuple[Source, str]) -> Elsewhere:
    """What an engine that reads one share gives to `load`."""
    data = reduced_share(files, None, all_times=False)
    found = [source for source, _ in files]
    return lambda _: (Inputs(files=found), [NamedBytes("part", data)])


def test_a_share_keeps_what_was_said_under_the_names_of_the_report(dumps: Path) -> None:
    """Broken dumps and files that are no dumps go by the names that the driver gave them."""
    files = [
        (Source(f"here/{s.relative}", s.relative, s.size, s.mtime_ns), s.path)
        for s in find_inputs([dumps]).files
    ]
    case = load(parts(*files))
    assert [item.source for item in case.dumps] == [f"here/nccl_trace_rank_{r}" for r in range(3)]
    assert any("skipped 1 file" in note.text for note in case.notes)
    whole = load(dumps)
    assert [(d.status, d.rank, d.written_ns) for d in case.dumps] == [
        (d.status, d.rank, d.written_ns) for d in whole.dumps
    ]


def test_a_share_may_hold_no_dump(dumps: Path) -> None:
    """Then it is a part with nothing but names."""
    found = next(s for s in find_inputs([dumps]).files if s.relative == "notes")
    data = reduced_share([(found, found.path)], None, all_times=True)
    both = [(s, s.path) for s in find_inputs([dumps]).files if s.relative != "notes"]
    more = reduced_share(both, None, all_times=True)
    case = load(lambda _: (Inputs(), [NamedBytes("part", data), NamedBytes("part", more)]))
    assert len(case.dumps) == 3
    assert any("skipped 1 file" in note.text for note in case.notes)


def test_a_file_that_a_node_does_not_see_is_no_lost_dump(dumps: Path) -> None:
    """It is the node that is wrong: nobody is called silent for that."""
    gone = Source("rank_9", "rank_9", 1, 0)
    with pytest.raises(FileNotFoundError, match="on this node"):
        reduced_share([(gone, str(dumps / "rank_9"))], None, all_times=False)


def test_a_part_that_was_spoilt_is_no_verdict(dumps: Path) -> None:
    """What comes back from an engine is whole, or nothing is judged."""
    found = find_inputs([dumps]).files[0]
    data = reduced_share([(found, found.path)], None, all_times=False)
    spoilt = [NamedBytes("part", data[:-9])]
    with pytest.raises(InputError, match="cut short"):
        load(lambda _: (Inputs(), spoilt))


def test_a_store_is_listed_as_a_folder_is(dumps: Path, store: str) -> None:
    """The same files in the same order, with addresses that can be opened."""
    there, _ = listed(store)
    here = find_inputs([dumps]).files
    assert [(s.relative, s.size) for s in there] == [(s.relative, s.size) for s in here]
    assert there[0].path == f"{store}/{there[0].relative}"
    assert all(source.mtime_ns >= 0 for source in there)


def test_a_store_is_read(dumps: Path, store: str) -> None:
    """A share of it gives what the files give."""
    whole, _ = listed(store)
    case = load(parts(*[(source, source.path) for source in whole]))
    assert [d.source for d in case.dumps] == [f"{store}/nccl_trace_rank_{r}" for r in range(3)]
    assert [d.status for d in case.dumps] == [d.status for d in load(dumps).dumps]


def test_names_in_a_store_are_no_paths(tmp_path: Path) -> None:
    """What an object is called decides nothing about where its copy goes."""
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pipe("/odd/a/../../../rank_0", b"one")
    sources = [Source("memory://odd/a/../../../rank_0", "rank_0", 3, 5)]
    (copy,) = copied(sources, tmp_path)
    assert (Path(copy.path).parent, Path(copy.path).read_bytes()) == (tmp_path, b"one")
    memory.store.clear()


def test_of_a_case_in_a_store_the_dumps_are_read(store: str) -> None:
    """What lies beside them is told apart from them."""
    memory = fsspec.filesystem("memory")
    for name in ("manifest.json", "dumps/nccl_trace_rank_0", "logs/rank_0"):
        memory.pipe(f"/bucket/case/{name}", b"x")
    found, beside = listed(f"{store.rpartition('/')[0]}/case/")
    assert ([source.relative for source in found], beside) == (["dumps/nccl_trace_rank_0"], True)
    one, _ = listed("memory://bucket/case/logs/rank_0")
    several, _ = listed("memory://bucket/case/*/*rank_0")
    assert [s.relative for s in one] == ["rank_0"]
    assert [s.relative for s in several] == ["nccl_trace_rank_0", "rank_0"]


def test_what_is_not_there_is_said_by_the_listing(tmp_path: Path, store: str) -> None:
    """On a node that has it not, and in a store."""
    del store
    assert not listing_of("memory://bucket/nothing", "").there
    assert not listing_of("no-such-folder", str(tmp_path)).there
    assert look(["a"], str(tmp_path))[0] == look(["a"], str(tmp_path))[0]


def test_without_ray_its_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sentence, and what installs it."""
    monkeypatch.setattr("unhang.ingest.ray.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError), ray_engine("auto"):
        pass
    assert main(["diagnose", "--engine", "ray", "dumps"]) == 2
    assert "pip install 'unhang[ray]'" in capsys.readouterr().err


def test_an_address_where_nobody_listens_is_said_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ray is not even started for it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        with pytest.raises(ToolError, match="no Ray cluster answers"), ray_engine(address):
            pass
        assert main(["diagnose", "--engine", f"ray:ray://{address}", "dumps"]) == 3
    assert "refused" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--engine", "spark", "x"], "there is no engine 'spark'"),
        (["--engine", "ray", "--watch", "x"], "watches files of this machine"),
    ],
)
def test_what_cannot_be_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is started."""
    assert main(["diagnose", *words]) == 2
    assert message in capsys.readouterr().err


def test_nothing_of_an_engine_is_imported_unless_it_is_asked_for(dumps: Path) -> None:
    """Neither Ray nor fsspec, nor what drives them."""
    code = (
        "import sys; from unhang.cli.main import main; "
        f"main(['diagnose', {str(dumps)!r}]); "
        "sys.exit(bool({'ray', 'fsspec', 'unhang.ingest.ray'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
