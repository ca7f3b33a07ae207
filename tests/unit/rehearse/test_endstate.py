"""From messages of ranks over dumps to the verdict: no process, no torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.rehearse.talk import Ranks, verdict
from unhang.errors import ToolError


def test_calls_that_all_meet_are_proved(tmp_path: Path) -> None:
    """Healthy, with how much was looked at."""
    ranks = Ranks(4)
    for rank in range(4):
        ranks.call(rank, 5, wait=False)
    for rank in range(4):
        ranks.end(rank)
    report = verdict(ranks, tmp_path / "case")
    assert report.status == "healthy"
    assert report.summary == (
        "Every call met: 4 calls of 4 ranks in 1 group, and every rank came to the end of its "
        "script."
    )


def test_no_call_at_all_is_no_proof(tmp_path: Path) -> None:
    """Nothing was matched."""
    ranks = Ranks(2)
    for rank in range(2):
        ranks.end(rank)
    assert verdict(ranks, tmp_path / "case").status == "insufficient"


def test_a_skipped_call_is_its_ranks(tmp_path: Path) -> None:
    """Rank 2 ends where its peers call once more; the program is to be mended, nothing awaited."""
    ranks = Ranks(4)
    for rank in range(4):
        ranks.call(rank, 5, wait=False)
    for rank in (0, 1, 3):
        ranks.call(rank, 8)
    ranks.end(2)
    report = verdict(ranks, tmp_path / "case")
    assert (report.status, report.culprits) == ("problem", (2,))
    assert report.causes[0].evidence[0] == "Rank 2 came to the end of the script, with exit code 0."
    assert report.decision is not None
    assert report.decision.action == "fix-code"
    assert ("train.py", 8) in {(site.file, site.line) for site in report.causes[0].sites}


def test_a_call_of_one_rank_alone_is_that_ranks(tmp_path: Path) -> None:
    """All others came to their end: it calls too much."""
    ranks = Ranks(4)
    for rank in range(4):
        ranks.call(rank, 5, wait=False)
    ranks.call(0, 9)
    for rank in (1, 2, 3):
        ranks.end(rank)
    report = verdict(ranks, tmp_path / "case")
    assert (report.status, report.culprits) == ("problem", (0,))
    assert {finding.confidence for finding in report.causes} == {"medium"}


def test_roots_that_differ_are_said(tmp_path: Path) -> None:
    """Torch's layout has no place for a root: it stands in the call's name."""
    ranks = Ranks(4)
    for rank in range(4):
        root = 1 if rank == 2 else 0
        ranks.call(rank, 7, kind="broadcast", op="broadcast", root=root, reduction="")
        if rank not in ranks.waiting():
            ranks.call(rank, 8)
    report = verdict(ranks, tmp_path / "case")
    assert (report.causes[0].slug, report.culprits) == ("op-mismatch", (2,))
    assert "broadcast(root 1)" in report.summary


def test_a_second_root_of_a_gather_is_the_odd_one(tmp_path: Path) -> None:
    """Two members have a list: the roots that all name say whose is wrong."""
    ranks = Ranks(4)
    for rank in range(4):
        root = 1 if rank == 1 else 0
        outputs = [[4]] * 4 if rank == root else []
        how = {"kind": "gather", "op": "gather", "root": root, "outputs": outputs}
        ranks.call(rank, 7, wait=rank < 2, reduction="", **how)
        if rank not in ranks.waiting():
            ranks.call(rank, 8)
    report = verdict(ranks, tmp_path / "case")
    assert (report.causes[0].slug, report.culprits) == ("split-mismatch", (1,))
    assert report.summary.endswith("it is rank 0 by ranks 0,2-3; rank 1 by rank 1.")


@pytest.mark.parametrize("apart", [True, False])
def test_a_batch_does_not_meet_a_single_receive(tmp_path: Path, *, apart: bool) -> None:
    """On NCCL without a device, each has a communicator of its own."""
    ranks = Ranks(2, pairs_apart=apart)
    how = {"reduction": "", "kind": "send", "op": "send", "outputs": [], "peer": 1, "batch": 0}
    number = ranks.call(0, 5, wait=False, **how)
    ranks.say(0, "closed", batch=0)
    ranks.wait(0, number, 6)
    ranks.call(1, 9, kind="recv", op="recv", reduction="", peer=0, inputs=[])
    assert ranks.waiting() == ([0, 1] if apart else [])
    if apart:
        report = verdict(ranks, tmp_path / "case")
        assert (report.causes[0].slug, report.causes[0].confidence) == ("p2p-mismatch", "high")
        assert {5, 9} <= {site.line for site in report.causes[0].sites}
        assert report.summary == report.causes[0].summary


def test_an_exchange_whose_pairs_differ_is_its_ranks(tmp_path: Path) -> None:
    """All members together give what they take, and two of them disagree."""
    ranks = Ranks(4)
    for rank in range(4):
        gives = {1: [4, 4, 6, 2]}.get(rank, [4] * 4)
        takes = {3: [4, 4, 4, 4]}.get(rank, [4] * 4)
        how = {"kind": "exchange", "op": "all_to_all", "gives": gives, "takes": takes}
        ranks.call(rank, 7, inputs=[[16]], outputs=[[16]], reduction="", **how)
    report = verdict(ranks, tmp_path / "case")
    assert report.causes[0].slug == "split-mismatch"
    assert "rank 1 gives 6 to rank 2, which takes 4 elements" in report.summary


def test_a_member_about_whom_all_others_disagree_is_the_odd_one(tmp_path: Path) -> None:
    """Each gives every other as much as its own rows; those of one are fewer."""
    ranks = Ranks(4)
    for rank in range(4):
        each = 3 if rank == 2 else 4
        how = {"kind": "exchange", "op": "all_to_all", "gives": [each] * 4, "takes": [each] * 4}
        ranks.call(rank, 7, inputs=[[4 * each]], outputs=[[4 * each]], reduction="", **how)
    report = verdict(ranks, tmp_path / "case")
    assert (report.causes[0].family, report.culprits) == ("disagreement", (2,))


def test_an_exchange_whose_totals_differ_shows_in_its_sizes(tmp_path: Path) -> None:
    """The analysis knows that fault, and whose it is: calls keep their names."""
    ranks = Ranks(4)
    for rank in range(4):
        gives = [5, 4, 4, 4] if rank == 2 else [4] * 4
        how = {"kind": "exchange", "op": "all_to_all", "gives": gives, "takes": [4] * 4}
        ranks.call(rank, 7, inputs=[[sum(gives)]], outputs=[[16]], reduction="", **how)
    report = verdict(ranks, tmp_path / "case")
    assert (report.causes[0].slug, report.culprits) == ("split-mismatch", (2,))


def test_a_send_that_is_left_over_is_found(tmp_path: Path) -> None:
    """Though every rank came to its end."""
    ranks = Ranks(2, "gloo")
    ranks.call(0, 4, wait=False, kind="send", op="send", reduction="", peer=1, outputs=[])
    for rank in range(2):
        ranks.call(rank, 6, wait=False)
        ranks.end(rank)
    report = verdict(ranks, tmp_path / "case")
    assert (report.status, report.causes[0].slug) == ("problem", "p2p-unmatched")


def test_the_time_limit_proves_nothing(tmp_path: Path) -> None:
    """Neither health nor a fault, where ranks still move."""
    ranks = Ranks(2)
    ranks.call(0, 5)
    report = verdict(ranks, tmp_path / "case", "late")
    assert report.status == "insufficient"
    assert "rank 1 still ran" in report.summary


def test_a_failure_of_our_own_part_blames_no_script(tmp_path: Path) -> None:
    """It is said as an error of the tool."""
    ranks = Ranks(2)
    import unhang.rehearse as package

    ours = str(Path(package.__file__).parent / "inside" / "group.py")
    frames = [["allreduce", ours, 3], ["main", "train.py", 4]]
    ranks.say(0, "end", code=1, error="NotImplementedError: x", frames=frames)
    ranks.end(1)
    with pytest.raises(ToolError, match="rank 0 asked for something"):
        verdict(ranks, tmp_path / "case")


def test_an_exception_of_every_rank_is_the_verdict(tmp_path: Path) -> None:
    """With its line: no rank is behind it, and no log has to be read."""
    ranks = Ranks(2)
    for rank in range(2):
        ranks.end(rank, 1, "KeyError: 'lr'", 12)
    report = verdict(ranks, tmp_path / "case")
    assert (report.status, report.causes[0].slug) == ("problem", "unhandled-exception")
    assert report.summary == "Every rank raised KeyError: 'lr' at load (train.py:12)."
    assert [(site.file, site.line) for site in report.causes[0].sites] == [("train.py", 12)]


def test_an_exception_that_is_known_is_of_its_kind(tmp_path: Path) -> None:
    """As where a log has it."""
    ranks = Ranks(2)
    for rank in range(2):
        words = f"Rank {rank} has {4 + rank} params, while rank {1 - rank} has inconsistent"
        error = f"RuntimeError: DDP expects same model across all ranks, but {words} 5 params."
        ranks.end(rank, 1, error, 12)
    assert verdict(ranks, tmp_path / "case").causes[0].slug == "models-differ"


def test_an_exception_of_one_rank_at_the_end_is_its_own(tmp_path: Path) -> None:
    """No rank waits for it any more."""
    ranks = Ranks(3)
    for rank in range(3):
        ranks.call(rank, 5, wait=False)
        ranks.end(rank, *((1, "ValueError: bad", 9) if rank == 1 else ()))
    report = verdict(ranks, tmp_path / "case")
    assert (report.culprits, report.causes[0].sites[0].line) == ((1,), 9)


def test_a_rank_that_raises_before_its_first_group_is_blamed_by_name(tmp_path: Path) -> None:
    """Its peers wait for it; it has no group, and its exception is known all the same."""
    ranks = Ranks(3)
    ranks.referee.ranks[2].groups.clear()
    for rank in range(2):
        ranks.call(rank, 5)
    ranks.end(2, 1, "ValueError: bad", 9)
    report = verdict(ranks, tmp_path / "case")
    assert (report.culprits, report.causes[0].slug) == ((2,), "rank-ended")
    assert "ValueError: bad" in report.summary


@pytest.mark.parametrize(
    "error",
    [
        "ModuleNotFoundError: No module named 'flash_attn'",
        "RuntimeError: no CUDA GPUs",
        "NotImplementedError: Operator aten._scaled_dot_product_flash_attention_for_cpu.default",
    ],
)
def test_what_this_machine_lacks_blames_no_script(tmp_path: Path, error: str) -> None:
    """It may be right where it is to run."""
    ranks = Ranks(2)
    for rank in range(2):
        ranks.end(rank, 1, error, 3)
    with pytest.raises(ToolError, match="needs what this machine does not have"):
        verdict(ranks, tmp_path / "case")


def test_of_two_ranks_the_one_that_turned_off_is_named(tmp_path: Path) -> None:
    """Rank 0 saves at a line of its own, rank 1 goes on with the loop that both went through."""
    ranks = Ranks(2)
    for rank in range(2):
        ranks.call(rank, 5, wait=False)
    ranks.call(0, 30, op="broadcast", kind="broadcast", root=0, reduction="")
    ranks.call(1, 5)
    report = verdict(ranks, tmp_path / "case")
    assert (report.causes[0].family, report.culprits) == ("disagreement", (0,))
    assert report.causes[0].confidence == "medium"


def test_of_two_ranks_at_new_lines_none_is_named(tmp_path: Path) -> None:
    """Nothing tells which of them went wrong."""
    ranks = Ranks(2)
    for rank in range(2):
        ranks.call(rank, 5, wait=False)
    ranks.call(0, 30, op="broadcast", kind="broadcast", root=0, reduction="")
    ranks.call(1, 40)
    assert verdict(ranks, tmp_path / "case").culprits == ()


def test_lines_that_read_what_is_not_real_limit_the_proof(tmp_path: Path) -> None:
    """They are listed, and the verdict says that it depends on them."""
    ranks = Ranks(2)
    for rank in range(2):
        number = ranks.call(rank, 5, wait=False, carried=False)
        ranks.say(rank, "unreal", number=number)
        ranks.say(rank, "read", what="item", file="/a/train.py", line=7)
        ranks.end(rank)
    report = verdict(ranks, tmp_path / "case")
    assert report.status == "healthy"
    assert "as far as it does not decide by the values that train.py:7 read" in report.summary
    assert report.decision is not None
    assert report.decision.confidence == "medium"
    assert any("/a/train.py:7 reads item" in note.text for note in report.notes)


def test_a_group_that_some_ranks_alone_make_is_noted(tmp_path: Path) -> None:
    """It works as long as no other group is made, so it is no fault yet."""
    ranks = Ranks(3)
    place = {"stack": 7, "frames": [["main", "/a/train.py", 4]]}
    for rank in range(3):
        ranks.call(rank, 5, wait=False)
        ranks.say(rank, "asked", ranks=[0, 2], **place)
    ranks.say(0, "asked", ranks=[0, 1], **place)
    for rank in range(3):
        ranks.end(rank)
    report = verdict(ranks, tmp_path / "case")
    assert report.status == "healthy"
    (noted,) = (note.text for note in report.notes if "new_group" in note.text)
    assert noted.startswith("/a/train.py:4 makes a group of ranks 0-1, and ranks 1-2 did not: ")


def test_a_script_that_raises_it_itself_is_blamed(tmp_path: Path) -> None:
    """Whatever words it chooses: a line that raises needs nothing of this machine."""
    script = tmp_path / "train.py"
    script.write_text("import x\nraise RuntimeError('CUDA out of memory')\n")
    ranks = Ranks(2)
    for rank in range(2):
        frames = [["load", str(script), 2]]
        error = "RuntimeError: CUDA out of memory"
        ranks.say(rank, "end", code=1, error=error, frames=frames)
    report = verdict(ranks, tmp_path / "case")
    assert report.summary.startswith("Every rank raised RuntimeError: CUDA out of memory")


def test_a_line_of_all_ranks_is_told_with_the_way_to_it(tmp_path: Path) -> None:
    """Rank 0 evaluates alone: the model's line 7 is every rank's, line 30 is its own."""
    ranks = Ranks(4)
    for rank in range(4):
        ranks.call(rank, 7, by=(20,), wait=False)
    ranks.call(0, 7, by=(30,), op="_all_gather_base", kind="gather_one")
    for rank in (1, 2, 3):
        ranks.call(rank, 7, by=(20,))
    first = verdict(ranks, tmp_path / "case").causes[0]
    assert first.culprits == (0,)
    assert (("train.py", 30), (0,)) in {((s.file, s.line), s.ranks) for s in first.sites}
    assert first.evidence[0] == (
        "Rank 0 came there by train.py:30 in main; ranks 1-3 by train.py:20 in main."
    )


def test_the_way_is_not_told_where_the_line_tells_all(tmp_path: Path) -> None:
    """The call's own line is where they part."""
    ranks = Ranks(4)
    for rank in range(4):
        ranks.call(rank, 8 if rank else 9, by=(20,), op="broadcast" if rank else "all_reduce")
    first = verdict(ranks, tmp_path / "case").causes[0]
    assert {site.line for site in first.sites} == {8, 9}


def sharded(ranks: Ranks, lines: dict[int, int]) -> None:
    """Two groups of two; each rank makes a call at line 5, then one at a line of its own."""
    for rank in range(4):
        members = [0, 1] if rank < 2 else [2, 3]
        key = f"shard{members[0]}"
        ranks.group(rank, key, members)
        ranks.call(rank, 5, group=f"{key}/{members}", wait=False)
    for rank, line in lines.items():
        members = [0, 1] if rank < 2 else [2, 3]
        op = "reduce_scatter" if line == 6 else "all_gather"
        ranks.call(rank, line, group=f"shard{members[0]}/{members}", op=op, wait=rank < 2)


def test_ranks_outside_of_a_group_tell_which_of_two_left_the_way(tmp_path: Path) -> None:
    """Rank 1 skips a step; ranks 2 and 3, which are in another group, go on as rank 0."""
    ranks = Ranks(4)
    sharded(ranks, {0: 6, 1: 5, 2: 6, 3: 6})
    first = verdict(ranks, tmp_path / "case").causes[0]
    assert first.culprits == (1,)
    assert first.evidence[0].startswith("Rank 0 made calls line by line as ranks 2-3 did")


def test_ranks_that_go_two_ways_outside_of_a_group_tell_nothing(tmp_path: Path) -> None:
    """Rank 3 is with rank 1: either way may be right."""
    ranks = Ranks(4)
    sharded(ranks, {0: 6, 1: 5, 2: 6, 3: 5})
    assert verdict(ranks, tmp_path / "case").causes[0].culprits == ()


@pytest.mark.parametrize(("condition", "culprits"), [("if rank == 0:", (0,)), ("try:", ())])
def test_of_two_ranks_the_one_under_a_condition_turned_off(
    tmp_path: Path, condition: str, culprits: tuple[int, ...]
) -> None:
    """Under none, rank 1 may as well have skipped the line."""
    script = tmp_path / "train.py"
    end = "    except OSError:\n        pass\n" if condition == "try:" else ""
    script.write_text(f"while True:\n    step()\n    {condition}\n        more()\n{end}")
    ranks = Ranks(2)
    for rank, lines in {0: (2, 4), 1: (2, 2)}.items():
        for number, line in enumerate(lines):
            frames = [["main", str(script), line]]
            op = "all_reduce" if line == 2 else "broadcast"
            ranks.call(rank, line, wait=number == 1, frames=frames, op=op)
    assert verdict(ranks, tmp_path / "case").causes[0].culprits == culprits


def test_a_rank_that_was_never_started_is_named(tmp_path: Path) -> None:
    """Two processes, and a world size of three."""
    ranks = Ranks(2)
    for rank in range(2):
        place = {"stack": 900, "frames": [["main", "train.py", 3]]}
        ranks.say(rank, "init", rank=rank, world=3, parent=1, **place)
        ranks.group(rank, "1", range(3))
        ranks.call(rank, 5, group="1/[0, 1, 2]")
    ranks.size = 3
    first = verdict(ranks, tmp_path / "case").causes[0]
    assert (first.slug, first.culprits) == ("never-joined", (2,))
    assert first.summary == (
        "Rank 2 of 3 never started: init_process_group at train.py:3 waits for 3 ranks, and 2 "
        "processes came."
    )


SAVES = """\
def fit():
    step()
    if rank == 0:
        save()
    barrier()
"""


@pytest.mark.parametrize(("ways", "culprits"), [
    ({0: (2, 4), 1: (2, 5)}, (0,)),
    ({0: (2, 4), 1: (2, 5), 2: (2, 4), 3: (2, 5)}, (0, 2)),
    ({0: (2, 4), 1: (2, 2), 2: (2, 4), 3: (2, 2)}, (0, 2)),
    ({0: (2, 4), 1: (2, 5), 2: (2, 6), 3: (2, 5)}, ()),
])  # fmt: skip
def test_of_two_new_lines_the_one_under_a_condition_turned_off(
    tmp_path: Path, ways: dict[int, tuple[int, int]], culprits: tuple[int, ...]
) -> None:
    """Neither side came to the line of the other; pairs of a mesh may all part in the same way."""
    script = tmp_path / "train.py"
    script.write_text(SAVES)
    ranks = Ranks(len(ways))
    for rank, lines in ways.items():
        pair = [rank // 2 * 2, rank // 2 * 2 + 1]
        ranks.group(rank, str(pair[0]), pair)
        for number, line in enumerate(lines):
            frames = [["fit", str(script), line]]
            op = {2: "all_reduce", 4: "broadcast"}.get(line, "barrier")
            group = f"{pair[0]}/{pair}"
            ranks.call(rank, line, wait=number == 1, frames=frames, op=op, group=group)
    assert verdict(ranks, tmp_path / "case").causes[0].culprits == culprits


def asks(ranks: Ranks, rank: int, members: list[int], name: str, line: int) -> str:
    """A rank calls new_group, and has a group if it is a member; returns the group's key."""
    place = {"stack": 500 + line, "frames": [["setup", "train.py", line]]}
    ranks.say(rank, "asked", ranks=members, **place)
    if rank in members:
        ranks.group(rank, name, members)
    return f"{name}/{members}"


def test_a_group_that_one_rank_alone_makes_is_its_fault(tmp_path: Path) -> None:
    """Rank 0 makes one more, so its next group has a number that its partner's has not."""
    ranks = Ranks(4)
    asks(ranks, 0, [0], "1", 7)
    keys = [asks(ranks, rank, [0, 1], "1" if rank else "2", 8) for rank in range(4)]
    for rank in (0, 1):
        ranks.call(rank, 9, group=keys[rank])
    for rank in (2, 3):
        ranks.end(rank)
    first = verdict(ranks, tmp_path / "case").causes[0]
    assert (first.slug, first.culprits) == ("membership-mismatch", (0,))
    assert {(site.line, site.role) for site in first.sites} == {(7, "culprit"), (8, "victim")}


def halves(ranks: Ranks, *, of_all: bool) -> None:
    """Each half makes a call in a group of its own, which all ranks make or only its members."""
    for rank in range(4):
        mine = [0, 1] if rank < 2 else [2, 3]
        made = [[0, 1], [2, 3]] if of_all else [mine]
        keys = [asks(ranks, rank, members, str(n), 7) for n, members in enumerate(made, 1)]
        ranks.call(rank, 9, group=keys[made.index(mine)])
        ranks.end(rank)


def test_groups_of_one_name_may_meet_each_other(tmp_path: Path) -> None:
    """Seen on Gloo: a sum over ranks 0 and 3 where each half had made its own group."""
    ranks = Ranks(4)
    halves(ranks, of_all=False)
    first = verdict(ranks, tmp_path / "case").causes[0]
    assert (first.slug, first.confidence, first.culprits) == ("membership-mismatch", "medium", ())


def test_groups_that_all_ranks_make_are_apart(tmp_path: Path) -> None:
    """As torch wants it."""
    ranks = Ranks(4)
    halves(ranks, of_all=True)
    assert verdict(ranks, tmp_path / "case").status == "healthy"


def test_a_key_that_no_rank_sets_is_named(tmp_path: Path) -> None:
    """What the rank waits for stands first."""
    ranks = Ranks(2)
    place = {"stack": 9, "frames": [["fetch", "train.py", 12]]}
    ranks.say(1, "store", do="wait", name="", keys=["ready"], **place)
    ranks.call(0, 14)
    first = verdict(ranks, tmp_path / "case").causes[0]
    assert "Rank 1 waited for the key ready of a store, which no rank has set." in first.evidence


def test_a_crash_in_compiled_code_says_nothing_about_the_script(tmp_path: Path) -> None:
    """On the CPU, torch runs other kernels than in the job."""
    ranks = Ranks(2)
    ranks.call(0, 5, wait=False)
    ranks.call(1, 5)
    ranks.end(0, code=139)
    with pytest.raises(ToolError, match="rank 0 was ended by SIGSEGV"):
        verdict(ranks, tmp_path / "case")


def test_an_exchange_that_a_rank_left_out_is_shown_with_its_line(tmp_path: Path) -> None:
    """Rank 0 received from rank 1 once, and waits in a barrier where rank 1 sends again."""
    ranks = Ranks(2)
    exchange = {"kind": "send", "reduction": "", "outputs": [], "output_dtypes": []}
    back = {"kind": "recv", "reduction": "", "inputs": [], "dtypes": []}
    ranks.call(1, 4, op="send", peer=0, **exchange)
    ranks.call(0, 7, op="recv", peer=1, **back)
    ranks.call(1, 4, op="send", peer=0, **exchange)
    ranks.call(0, 9)
    cause = verdict(ranks, tmp_path / "case").causes[0]
    assert {site.line for site in cause.sites} == {4, 7, 9}
    said = "Rank 0 received from rank 1 before, at train.py:7 in main, and did not come there again"
    assert any(text.startswith(said) for text in cause.evidence)


def test_a_rank_that_waits_in_an_exchange_itself_left_none_out(tmp_path: Path) -> None:
    """Both receive, and neither comes to the send that it made before."""
    ranks = Ranks(2)
    exchange = {"kind": "send", "reduction": "", "outputs": [], "output_dtypes": []}
    back = {"kind": "recv", "reduction": "", "inputs": [], "dtypes": []}
    ranks.call(1, 4, op="send", peer=0, **exchange)
    ranks.call(0, 7, op="recv", peer=1, **back)
    ranks.call(0, 8, op="recv", peer=1, **back)
    ranks.call(1, 6, op="recv", peer=0, **back)
    cause = verdict(ranks, tmp_path / "case").causes[0]
    assert {site.line for site in cause.sites} == {6, 8}
