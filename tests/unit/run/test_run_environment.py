from __future__ import annotations

from pathlib import Path

import pytest

from unhang.errors import UsageError
from unhang.run.child.environment import (
    EnvironmentPlan,
    Options,
    interpreter_of,
    plan_environment,
    site_directories,
    torch_version,
)
from unhang.torchenv import OLDER_NAMES


def plan(env: dict[str, str], command: list[str], **options: object) -> EnvironmentPlan:
    """A plan with fixed places and ids."""
    return plan_environment(
        env,
        command,
        staging="/s",
        run_id="run1",
        job_id="job1",
        options=Options(**options),  # type: ignore[arg-type]
    )


def environment(tmp_path: Path, version: str) -> Path:
    """A virtual environment in which torch seems to be installed; returns its Python."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("")
    python.chmod(0o755)
    info = tmp_path / "lib" / "python3.11" / "site-packages" / f"torch-{version}.dist-info"
    info.mkdir(parents=True)
    return python


NAMES = [
    ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
    ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
    ("TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT"),
    ("TORCH_FR_CPP_STACK", "TORCH_NCCL_TRACE_CPP_STACK"),
    ("TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"),
]


@pytest.mark.parametrize("version", ["2.13.0+cpu", "2.9.1", "2.8.1", "2.2.0", ""])
def test_both_names_are_set_for_every_torch(tmp_path: Path, version: str) -> None:
    """The recorder of 2.9 to 2.11 reads either name, its dump pipe only the older one."""
    python = str(environment(tmp_path, version)) if version else "not-there"
    found = plan({}, [python, "train.py"])
    assert found.torch == version
    added = found.apply({})
    for new, old in NAMES[:3]:
        assert added[new] == added[old]
    assert added["TORCH_FR_BUFFER_SIZE"] == "2000"
    assert added["TORCH_FR_DUMP_TEMP_FILE"] == "/s/nccl/rank_"
    assert not {name for pair in NAMES[3:] for name in pair} & set(added)


@pytest.mark.parametrize("names", [pair for both in NAMES for pair in (both, both[::-1])])
def test_what_the_user_set_stays_and_gets_the_other_name(names: tuple[str, str]) -> None:
    """The user's value under one name is mirrored to the other, never replaced."""
    set_by_user, other = names
    env = {set_by_user: "77", "UNHANG_JOB": "mine"}
    found = plan(env, ["python"], buffer_size=50)
    assert f"{set_by_user}=77" in {setting.kept_as for setting in found.settings}
    applied = found.apply(env)
    assert applied[set_by_user] == applied[other] == "77"
    assert applied["UNHANG_JOB"] == "mine"


def test_two_values_of_the_users_stay_two() -> None:
    """Who sets both names differently means it."""
    env = {"TORCH_FR_BUFFER_SIZE": "77", "TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}
    assert plan(env, ["python"]).apply(env).items() >= env.items()


def test_the_hook_comes_first_and_keeps_what_is_there() -> None:
    """PYTHONPATH gains our directory in front and loses nothing."""
    path = plan({"PYTHONPATH": "/a:/b"}, ["python"]).apply({})["PYTHONPATH"].split(":")
    assert path[0].endswith("record/hook")
    assert path[1:] == ["/a", "/b"]


def test_without_arming_only_torch_is_configured() -> None:
    """--no-arm leaves PYTHONPATH and our own variables alone."""
    found = plan({}, ["python"], arm=False, rank_logs=False)
    names = {setting.name for setting in found.settings}
    assert all(name.startswith("TORCH_") for name in names)


def test_unarmed_the_older_names_go_by_the_torch_beside_the_command(tmp_path: Path) -> None:
    """No process of ours can take back there what its torch would call deprecated."""
    for version, kept in (("2.9.1", 3), ("2.13.0+cu130", 1), ("2.15.0", 0), ("", 3)):
        python = str(environment(tmp_path / version, version)) if version else "not-there"
        added = plan({}, [python], arm=False).apply({})
        assert sum(older in added for _, older in NAMES) == kept, version
        assert all(newer in added for newer, _ in NAMES[:3])


def test_armed_processes_are_told_which_older_names_are_ours() -> None:
    """What the user has set is never taken back; what a run around this one has set is."""
    env = {"TORCH_NCCL_TRACE_BUFFER_SIZE": "77"}
    told = plan(env, ["python"]).apply(env)[OLDER_NAMES]
    assert told == "TORCH_NCCL_DEBUG_INFO_TEMP_FILE,TORCH_NCCL_DUMP_ON_TIMEOUT"
    outer = plan({}, ["python"]).apply({})
    again = plan(outer, ["python"]).apply(outer)
    assert again[OLDER_NAMES] == outer[OLDER_NAMES]


def test_options_become_variables() -> None:
    """Buffer size and timing are asked for by the names that others read."""
    env = plan({}, ["python"], buffer_size=50, timing=True).apply({})
    assert env["TORCH_FR_BUFFER_SIZE"] == env["UNHANG_BUFFER_SIZE"] == "50"
    assert env["TORCH_NCCL_ENABLE_TIMING"] == "1"


def test_blocking_launches_are_refused_where_they_deadlock(tmp_path: Path) -> None:
    """--blocking sets what makes errors show at their call, but not for an NCCL that hangs so."""
    good = str(environment(tmp_path / "good", "2.13.0"))
    bad = str(environment(tmp_path / "bad", "2.0.1"))
    assert plan({}, [good], blocking=True).apply({})["CUDA_LAUNCH_BLOCKING"] == "1"
    assert "CUDA_LAUNCH_BLOCKING" not in plan({}, [bad]).apply({})
    with pytest.raises(UsageError, match="deadlocks"):
        plan({}, [bad], blocking=True)


@pytest.mark.parametrize(
    ("env", "gpus", "seen"),
    [
        ({"CUDA_VISIBLE_DEVICES": "4,5"}, "", "4,5"),
        ({"CUDA_VISIBLE_DEVICES": "4,5"}, "none", ""),
        ({"CUDA_VISIBLE_DEVICES": "4,5"}, "one", "4"),
        ({"HIP_VISIBLE_DEVICES": "2,3"}, "one", "2"),
        ({}, "one", "0"),
    ],
)
def test_gpus_are_hidden_where_that_is_asked_for(env: dict[str, str], gpus: str, seen: str) -> None:
    """Of those that the user would see, none or the first."""
    found = plan(env, ["python"], gpus=gpus).apply(env)
    assert found["CUDA_VISIBLE_DEVICES"] == seen
    assert found.get("HIP_VISIBLE_DEVICES", seen) == seen


def test_blocking_launches_of_one_gpu_are_not_refused(tmp_path: Path) -> None:
    """One rank waits for nobody in NCCL."""
    bad = str(environment(tmp_path, "2.0.1"))
    assert plan({}, [bad], blocking=True, gpus="one").apply({})["CUDA_LAUNCH_BLOCKING"] == "1"


def test_interpreters_of_scripts(tmp_path: Path) -> None:
    """A launcher's first line names its interpreter; /usr/bin/env is looked through."""
    python = environment(tmp_path, "2.13.0")
    direct, by_env, shell = tmp_path / "torchrun", tmp_path / "other", tmp_path / "run.sh"
    direct.write_text(f"#!{python}\n")
    by_env.write_text("#!/usr/bin/env python\n")
    shell.write_text("#!/bin/bash\n")
    for path in (direct, by_env, shell):
        path.chmod(0o755)
    env = {"PATH": str(python.parent)}
    assert interpreter_of([str(direct)], env) == str(python)
    assert interpreter_of([str(by_env)], env) == str(python)
    assert interpreter_of([str(shell)], env) == ""
    assert interpreter_of(["not-there"], env) == ""


def test_a_torch_built_in_place_has_a_version(tmp_path: Path) -> None:
    """Without metadata the version file tells."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.14.0a0+git'\n")
    assert torch_version(["/nowhere", str(tmp_path)]) == "2.14.0a0+git"
    assert torch_version([]) == ""


def test_pythonpath_comes_before_the_interpreters_own_packages(tmp_path: Path) -> None:
    """The order is the interpreter's."""
    python = environment(tmp_path, "2.13.0")
    folders = site_directories(str(python), {"PYTHONPATH": "/first"})
    assert folders[0] == "/first"
    assert str(tmp_path / "lib/python3.11/site-packages") in folders


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["python", "-E", "train.py"], "skips the startup hook"),
        (["python", "-sI", "train.py"], "skips the startup hook"),
        (["ls"], "found no torch"),
    ],
)
def test_what_will_not_work_is_said(command: list[str], words: str) -> None:
    """Remarks tell what is not armed and why."""
    assert any(words in remark for remark in plan({}, command).remarks)


def test_a_torch_without_recorder_is_said(tmp_path: Path) -> None:
    """With torch 2.1 our own recorder is what there is."""
    remarks = plan({}, [str(environment(tmp_path, "2.1.2")), "train.py"]).remarks
    assert any("has no recorder" in remark for remark in remarks)


@pytest.mark.parametrize("mode", ["fast", "dladdr", "addr2line"])
def test_cpp_stacks_are_asked_for_under_both_names(mode: str) -> None:
    """With the way to find their names; without the wish neither is touched."""
    applied = plan({}, ["python"], symbolize=mode).apply({})
    assert applied["TORCH_FR_CPP_STACK"] == applied["TORCH_NCCL_TRACE_CPP_STACK"] == "1"
    assert applied["TORCH_SYMBOLIZE_MODE"] == mode
    assert "TORCH_SYMBOLIZE_MODE" not in plan({}, ["python"]).apply({})


def test_a_users_own_word_on_cpp_stacks_stays() -> None:
    """What is set already is told once, and not overridden."""
    found = plan({"TORCH_FR_CPP_STACK": "0"}, ["python"], symbolize="fast")
    assert found.apply({})["TORCH_NCCL_TRACE_CPP_STACK"] == "0"
    names = [setting.name for setting in found.settings]
    assert len(names) == len(set(names))
