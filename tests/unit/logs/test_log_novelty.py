"""What a log says at its end that a good run never said."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.cli.main import main
from unhang.logs import novelty
from unhang.logs.files import find_logs
from unhang.logs.novelty import new_lines, read_good_run, shape
from unhang.model import Note

STEPS = "".join(f"[rank{n % 4}]: step {n} loss 0.{n} from /data/shard_{n}.tar\n" for n in range(50))


def told(tmp_path: Path, good: str, bad: str) -> list[str]:
    """The new lines of a log, compared with a good one."""
    (tmp_path / "good.log").write_text(good)
    (tmp_path / "bad.log").write_text(bad)
    notes: list[Note] = []
    baseline = read_good_run(find_logs(tmp_path / "good.log"), notes)
    assert not notes
    return [event.text for event in new_lines(find_logs(tmp_path / "bad.log"), baseline, notes)]


def test_numbers_paths_and_quotes_are_no_news(tmp_path: Path) -> None:
    """Another step of another file is the same line."""
    later = STEPS.replace("step ", "step 9").replace("shard", "part")
    assert told(tmp_path, STEPS + "saved '/a/b.pt'\n", later + "saved '/c/d.pt'\n") == []


def test_what_is_new_is_told_once_with_its_place(tmp_path: Path) -> None:
    """A strange line is told, with its rank and its line, however often it comes."""
    assert told(tmp_path, STEPS, STEPS + "[rank2]: lost the sheep 7\n" * 3) == ["lost the sheep 7"]
    notes: list[Note] = []
    good = read_good_run(find_logs(tmp_path / "good.log"), notes)
    event = new_lines(find_logs(tmp_path / "bad.log"), good, notes)[0]
    assert (event.rank, event.count, event.source) == (2, 3, f"{tmp_path}/bad.log:51")


def test_trouble_comes_before_what_is_only_new(tmp_path: Path) -> None:
    """Of many new lines those are kept that speak of trouble, and those that came last."""
    words = ("ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "ibis", "jay")
    strange = "".join(f"[rank0]: a new {word} came\n" for word in words)
    lines = told(tmp_path, STEPS, f"[rank1]: the gate was refused\n{strange}")
    assert lines[0] == "the gate was refused"
    assert lines[-1] == "a new jay came"
    assert len(lines) == novelty.MOST


def test_what_a_rule_knows_is_left_to_the_rule(tmp_path: Path) -> None:
    """The cause is told by its rule, and not again as news."""
    bad = STEPS + "[rank1]: OSError: [Errno 28] No space left on device\n"
    assert told(tmp_path, STEPS, bad) == []


def test_a_very_long_good_run_is_read_at_both_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its middle is left out, and a note says so."""
    monkeypatch.setattr(novelty, "MAX_READ", 200)
    path = tmp_path / "good.log"
    path.write_text(f"first line of all\n{STEPS}last line of all\n")
    notes: list[Note] = []
    shapes = read_good_run(find_logs(path), notes).shapes
    assert {"first line of all", "last line of all"} <= shapes
    assert [note.text for note in notes][:1] == ["its middle is not compared"]


def test_the_command_tells_it_beside_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--baseline adds an observation; standard input and an empty baseline are refused."""
    (tmp_path / "good.log").write_text(f"{STEPS}training finished\n")
    (tmp_path / "bad.log").write_text(STEPS + "[rank2]: ERROR: the sheep is lost\n")
    bad, good = str(tmp_path / "bad.log"), str(tmp_path / "good.log")
    assert main(["logs", bad, "--baseline", good]) == 3
    assert "new since the good run" in capsys.readouterr().out
    assert main(["logs", good, "--baseline", good]) == 0
    assert main(["logs", "-", "--baseline", good]) == 2
    (tmp_path / "empty.log").write_text("")
    assert main(["logs", bad, "--baseline", str(tmp_path / "empty.log")]) == 3


def test_shapes() -> None:
    """What is taken out of a line."""
    assert shape("loaded 'x' from /a/b-1.pt at 0x7f in 3.5s") == "loaded # from # at # in #s"


def test_earlier_cases_are_read_as_far_as_they_went_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A case, or a directory of cases, is a baseline: without the trouble that it ends in."""
    logs = tmp_path / "cases" / "before" / "logs"
    logs.mkdir(parents=True)
    (logs.parent / "dumps").mkdir()
    bad = STEPS + "[rank2]: the odd sheep came\n[rank2]: ERROR: the sheep is lost\n"
    (logs / "rank_2.log").write_text(bad + "[rank2]: then the wolf came\n")
    (tmp_path / "now.log").write_text(bad + "[rank2]: then the wolf came\n")
    for named in (logs.parent, tmp_path / "cases"):
        assert main(["logs", str(tmp_path / "now.log"), "--baseline", str(named), "-v"]) == 3
        told = capsys.readouterr().out
        assert "then the wolf came" in told
        assert "odd sheep" not in told
