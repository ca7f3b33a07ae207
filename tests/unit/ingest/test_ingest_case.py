"""A case directory holds one incident, whatever the dumps in it call themselves."""

from __future__ import annotations

from pathlib import Path

from makedumps import dump, entry, write

from unhang.ingest import load


def test_dumps_of_the_dead_belong_to_the_case(tmp_path: Path) -> None:
    """Dumps that ranks named themselves are not split off, and nothing is noted about it."""
    (tmp_path / "manifest.json").write_text('{"schema": "unhang.case/1", "world_size": 3}')
    folder = tmp_path / "dumps" / "gloo"
    folder.mkdir(parents=True)
    files = {
        f"rank_{rank}": dump(
            [entry(0)], ranks=3, unhang={"rank": rank, "incident": incident, "backend": "gloo"}
        )
        for rank, incident in enumerate(("hang", "hang", "job-end"))
    }
    write(folder, files)
    case = load(tmp_path)
    assert [found.rank for found in case.dumps] == [0, 1, 2]
    assert case.incident == "hang"
    assert not [note for note in case.notes if note.source == "incidents"]
    assert [found.rank for found in load(tmp_path, incident="job-end").dumps] == [2]
