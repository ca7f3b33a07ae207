from __future__ import annotations

import re
from dataclasses import replace

import pytest
from case_samples import stuck_case
from hypothesis import given, settings
from hypothesis import strategies as st
from report_samples import SAMPLES, never_joined

from unhang.activity.looks import ProcessLook
from unhang.analysis import diagnose
from unhang.case import Case
from unhang.model import AskedNode, DumpStatus, Frame, LogEvent, Note
from unhang.redact import SECRET, Redactor
from unhang.report import Finding, SavedReport, Subject, to_json


def test_names_of_one_text_are_replaced_consistently() -> None:
    """The same person and the same host are the same stand-in wherever they stand."""
    text = "alice@gpu-7.example.com:/home/alice/secret-plan/train.py line 3, alice on gpu-7"
    assert Redactor().text(text) == "user1@host1:/home/user1/dir1/train.py line 3, user1 on host1"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("10.1.2.3:29500, again 10.1.2.3", "192.0.2.1:29500, again 192.0.2.1"),
        ("[fe80::1%eth0]:29500", "[2001:db8::1%eth0]:29500"),
        ("ether AA:bb:cc:dd:ee:ff", "ether 02:00:00:00:00:01"),
        (
            "GPU-12345678-1234-1234-1234-123456789abc",
            "GPU-00000000-0000-0000-0000-000000000001",
        ),
        ("MASTER_ADDR=trainbox then trainbox", "MASTER_ADDR=host1 then host1"),
        ("USER=carol ran", "USER=user1 ran"),
        ("/scratch/carol/x/train.py", "/dir1/dir2/dir3/train.py"),
        (
            "/home/bob/venv/lib/python3.11/site-packages/torch/x.py",
            "/home/user1/dir1/lib/python3.11/site-packages/torch/x.py",
        ),
        ("s3://team/bob/run7/rank_0", "s3://dir1/dir2/dir3/rank_0"),
        ("https://bob:pw@git.example.com/x", f"https://{SECRET}@host1/x"),
    ],
)
def test_kinds_of_names(before: str, after: str) -> None:
    """Addresses, devices, hosts, users and directories, each in its own form."""
    assert Redactor().text(before) == after


@pytest.mark.parametrize(
    "text",
    [
        "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz",
        "found hf_abcdefghijklmnopqrstuvwxyz somewhere",
        "AWS_SECRET_ACCESS_KEY: wJalrXUtnFEMI",
        "key AKIAIOSFODNN7EXAMPLE",
        '{"password": "hunter2!"}',
        "--api-key zzz9999",
        "Authorization: Bearer abc.def-ghi",
        "token=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3.abc",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "password: 12345678",
    ],
)
def test_secrets_go(text: str) -> None:
    """No part of a secret is left, and the report counts it."""
    redactor = Redactor()
    clean = redactor.text(text)
    assert SECRET in clean
    for part in ("abcdefghij", "wJalr", "AKIA", "hunter", "zzz9", "abc.def", "eyJ", "MIIE", "1234"):
        assert part not in clean
    assert "1 secret" in redactor.summary()


@pytest.mark.parametrize(
    "text",
    [
        "rank 7 never called all_reduce #41 of default_pg (0, 8 ranks)",
        "torch.distributed.distributed_c10d, c10::Error, std::bad_alloc",
        "12:34:56 and/or 5 MB/s, 24/7, ratio 3/4",
        "127.0.0.1, ::1, 0.0.0.0, localhost",
        "tokens: 1234 per second, num_tokens=4096, token: 17",
        "/usr/lib/python3.11/queue.py:171",
        "<frozen importlib._bootstrap>",
        "NCCL version 2.21.5+cuda12.4",
    ],
)
def test_what_names_nobody_stays(text: str) -> None:
    """The words of a verdict survive, or it would be of no use."""
    redactor = Redactor()
    assert redactor.text(text) == text
    assert redactor.summary() == "Nothing had to be replaced."


def test_a_report_keeps_its_meaning() -> None:
    """Ranks, calls and lines are as before; hosts and paths are not; a note says what happened."""
    report = never_joined()
    clean = Redactor().report(report)
    assert clean.culprits == report.culprits
    assert clean.findings[0].sites[0].file == "/home/user/dir1/dir2/data.py"
    assert {rank.host for rank in clean.ranks} == {"host1"}
    assert clean.findings[0].evidence == report.findings[0].evidence
    assert clean.notes[-1].source == "redaction"
    assert "node01" not in str(to_json(clean))


def test_a_case_is_cleaned_everywhere() -> None:
    """Frames, dumps, samples, logs and notes carry no host, user or directory any more."""
    from dataclasses import replace

    case = replace(
        stuck_case(),
        log_events=(LogEvent("UH712", "cause", 0, "node02: alice", "/home/alice/o.log:1"),),
        notes=(Note("info", "/home/alice/dumps/rank_0", "read by alice on node01"),),
    )
    clean = Redactor().case(case)
    text = repr((clean.dumps, clean.samples, clean.log_events, clean.notes, clean.stacks.frames))
    assert not re.search(r"alice|node0\d", text)
    assert clean.stacks.frames[1] == Frame("train_step", "/home/user/train.py", 88)
    assert (clean.calls, clean.groups) == (case.calls, case.groups)
    assert [dump.status for dump in clean.dumps] == [dump.status for dump in case.dumps]
    assert clean.dumps[0].usable
    assert all(isinstance(dump.status, DumpStatus) for dump in clean.dumps)


def test_a_named_tuple_stays_one() -> None:
    """The activity of a process is read from its looks, by name."""
    look = ProcessLook(time_s=1.0, state="S")
    (redacted,) = Redactor().value((look,))
    assert (redacted, redacted.state) == (look, "S")


def test_nested_data_is_cleaned_by_key() -> None:
    """A dump's own keys tell what is a host, a user or a secret."""
    value = {
        "unhang": {"host": "trainbox", "pid": 7, "env": {"WANDB_API_KEY": "0123456789abcdef"}},
        "entries": [{"frames": [{"filename": "/home/alice/a.py", "line": 3}]}],
        "reason": ("trainbox said so", None, 1.5),
    }
    assert Redactor().value(value) == {
        "unhang": {"host": "host1", "pid": 7, "env": {"WANDB_API_KEY": SECRET}},
        "entries": [{"frames": [{"filename": "/home/user1/a.py", "line": 3}]}],
        "reason": ("host1 said so", None, 1.5),
    }


def test_reports_of_other_commands_lose_their_hosts() -> None:
    """Both ends of a link are names, also where nothing else gives them away."""
    subjects = (Subject("link", "frontier7 -> frontier9:29500"),)
    found = Finding("", "UH823", "cause", "high", "frontier9 is filtered.", subjects=subjects)
    saved = SavedReport("doctor", "/home/alice/d.json", 1, "problem", "It is.", (found,))
    (clean,) = Redactor().case(Case(reports=(saved,))).reports
    assert clean.findings[0].subjects[0].id == "host1 -> host2:29500"
    assert clean.findings[0].summary == "host2 is filtered."
    assert "alice" not in clean.source


def test_names_can_be_told() -> None:
    """What no form gives away has to be told; words of our reports are never replaced."""
    redactor = Redactor()
    redactor.learn(hosts=["frontier", "rank"], users=["me", "erin"])
    assert redactor.text("rank 3 on frontier: me, erin") == "rank 3 on host1: user1, user2"


def test_names_are_found_inside_words_and_short_ones_too() -> None:
    """Logs that carry a host's name; numbers and words that only look alike stay."""
    redactor = Redactor()
    redactor.learn(hosts=["n1", "gpu-rack7", "3"], users=["in"])
    told = redactor.text("n1:29500 rank 3, out-gpu-rack7-3.log, gpu-rack7_err, run-n1x, n10, r-n1")
    assert told == "host1:29500 rank 3, out-host2-3.log, host2_err, run-n1x, n10, r-host1"
    assert redactor.text("in, built-in") == "user1, built-in"


def test_the_summary_names_nobody() -> None:
    """What is shown to others only counts."""
    redactor = Redactor()
    redactor.text("/home/alice/x/y.py on 10.0.0.9 and 10.0.0.10")
    assert redactor.summary() == "Replaced: 2 IPv4 addresses, 1 path, 1 user."


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["/home/alice/p/t.py", "alice", "10.0.0.7", "node3.example.org", "node3", "rank 3",
             "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz", "bob@example.org", "user1", "fe80::2", "\n"]
        ),
        max_size=8,
    )
)  # fmt: skip
def test_redacting_twice_changes_nothing(words: list[str]) -> None:
    """Stand-ins are left alone, so that parts can be redacted before the whole is."""
    redactor = Redactor()
    once = redactor.text(" ".join(words))
    assert redactor.text(once) == once


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_every_report_can_be_redacted(name: str) -> None:
    """Whatever it holds."""
    assert Redactor().report(SAMPLES[name]()).status == SAMPLES[name]().status


def test_torchs_own_sources_stay_in_messages() -> None:
    """Rules know a message by them, so that the copy gets the same verdict."""
    line = "RuntimeError: [/__w/me/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection"
    told = Redactor().text(line)
    assert "/third_party/gloo/gloo/transport/tcp/pair.cc:553]" in told
    assert "__w" not in told


def test_nodes_that_did_not_answer_have_stand_ins() -> None:
    """In the list of nodes, and in every sentence about them."""
    nodes = (AskedNode("gpu-rack7", "not-reached", (1,), why="ssh: gpu-rack7: timed out"),)
    note = Note("warning", "nodes", "gpu-rack7 was not reached: ssh: gpu-rack7: timed out")
    case = replace(stuck_case(), nodes=nodes, notes=(note,))
    for clean in (Redactor().case(case), Redactor().report(replace(diagnose(case), nodes=nodes))):
        assert "rack7" not in repr(clean.nodes) + repr(clean.notes)
        assert clean.nodes[0].node != ""
