"""Where supervisors meet, with which token, and which files one takes of another."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.errors import UsageError
from unhang.run.meeting.invitation import TOKEN, invitation_of
from unhang.run.meeting.parcels import Parcels, files_of, is_of, parcelled

SECRET = "0123456789abcdef"  # noqa: S105 - of tests
TORCHRUN = ["torchrun", "--nnodes", "2"]


@pytest.mark.parametrize(
    ("env", "command", "place"),
    [
        ({}, [*TORCHRUN, "--rdzv-endpoint", "n1:29400"], ("n1", 30400)),
        ({}, [*TORCHRUN, "--master_addr=n1", "--master_port=65000"], ("n1", 64000)),
        ({}, [*TORCHRUN, "--master-addr", "n1"], ("n1", 30500)),
        ({}, [*TORCHRUN, "--rdzv-endpoint", "[fe80::1]:29400"], ("fe80::1", 30400)),
        ({"PET_NNODES": "2", "PET_MASTER_ADDR": "n1"}, ["torchrun", "train.py"], ("n1", 30500)),
        ({"RANK": "3", "MASTER_ADDR": "n1", "MASTER_PORT": "1"}, ["python"], ("n1", 1001)),
        ({}, ["torchrun", "--nproc-per-node", "8"], None),
        ({"RANK": "3"}, ["python"], None),
    ],
)
def test_they_meet_near_the_jobs_rendezvous(
    env: dict[str, str], command: list[str], place: tuple[str, int] | None
) -> None:
    """Which launchers tell in several ways; a job of one node has none to meet."""
    found = invitation_of({**env, TOKEN: SECRET}, command, "job")
    assert (found and (found.host, found.port)) == place
    assert invitation_of(env, command, "job") is None, "without a token nothing listens"


def test_what_cannot_be_used_is_said(tmp_path: Path) -> None:
    """Before the job starts."""
    for env, meet in (({}, "n1:1"), ({TOKEN: "short"}, "n1:1"), ({TOKEN: SECRET}, "n1:99999")):
        with pytest.raises(UsageError):
            invitation_of(env, ["python"], "job", meet)
    with pytest.raises(UsageError, match="is no HOST:PORT"):
        invitation_of({}, ["python"], "job", "foo")  # a token would not help
    path = tmp_path / "token"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o644)
    with pytest.raises(UsageError, match="others may read"):
        invitation_of({}, ["python"], "job", "n1:1", str(path))
    path.chmod(0o600)
    found = invitation_of({}, ["python"], "job", "n1:1", str(path))
    assert found is not None
    assert found.token == SECRET.encode()


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("dumps/gloo/rank_2", True),
        ("dumps/gloo/rank_2.json", True),
        ("dumps/gloo/rank_7", False),
        ("dumps/rank_2", False),
        ("stacks/b-1-1.json", True),
        ("logs/b-1-1/attempt_0/0/stdout.log", True),
        ("parts/b-1-1.json", True),
        ("parts/c-1-1.json", False),
        ("parts/b-1-1.end.json", False),
        ("stacks/c-1-1.json", False),
        ("stacks/../../b-1-1.json", False),
        ("/etc/b-1-1", False),
        ("logs/.b-1-1", False),
        ("report.json", False),
        ("", False),
    ],
)
def test_a_file_is_of_its_supervisor_or_of_its_ranks(name: str, *, theirs: bool) -> None:
    """Nothing else of a case can be written by it."""
    assert is_of(name, "b-1-1", frozenset({2, 3})) is theirs


def test_files_come_whole_and_take_no_place(tmp_path: Path) -> None:
    """Of another incident, or where another file lies, nothing is written; its own it renews."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for path in (theirs / "dumps" / "gloo", ours / "dumps" / "gloo"):
        path.mkdir(parents=True)
    (theirs / "dumps" / "gloo" / "rank_2").write_bytes(b"x" * 600_000)
    (theirs / "dumps" / "gloo" / "rank_3").write_bytes(b"y")
    (ours / "dumps" / "gloo" / "rank_3").write_bytes(b"ours")
    taking = Parcels(ours, 4, "b-1-1", lambda: frozenset({2, 3}))
    for number in (5, 4, 4):
        for path in files_of(theirs, "b-1-1"):
            for body in parcelled(theirs, path, number):
                taking.take(body)
    taking.close()
    assert (ours / "dumps" / "gloo" / "rank_2").read_bytes() == b"x" * 600_000
    assert (ours / "dumps" / "gloo" / "rank_3").read_bytes() == b"ours"
    assert len([*(ours / "dumps" / "gloo").iterdir()]) == 2
