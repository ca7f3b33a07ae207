"""AMD's tools, as their documentation and sources say that they answer.

No answer was recorded on a real GPU: those below were written after AMD's command line guide, the
changelog of AMD SMI (ROCm 6.1 to 7.x), and the sources of both tools.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unhang.doctor.agents import amd, gpu, programs
from unhang.doctor.asking.nodes import Node, NodeAnswer
from unhang.doctor.checks.gpu import check_gpus
from unhang.doctor.checks.results import CheckResult
from unhang.doctor.checks.shapes import gpus_misfit

BOTH = [{"gpu": 0, "bdf": "0000:0c:00.0"}, {"gpu": 1, "bdf": "0000:22:00.0"}]


def measured(value: float, unit: str) -> dict[str, Any]:
    """A number as amd-smi prints it."""
    return {"value": value, "unit": unit}


def metric(index: int, **changes: object) -> dict[str, Any]:
    """What `amd-smi metric` prints of a GPU with nothing wrong, as far as it is read."""
    quiet = {f"{name}_violation_status": "NOT ACTIVE" for name in (*amd.HARD, "ppt")}
    return {
        "gpu": index,
        "power": {"socket_power": measured(140, "W"), "throttle_status": "N/A"},
        "temperature": {"edge": "N/A", "hotspot": measured(41, "C"), "mem": measured(35, "C")},
        "pcie": {"width": 16, "speed": measured(32, "GT/s"), "replay_count": 0},
        "ecc": {"total_correctable_count": 5, "total_uncorrectable_count": 0},
        "mem_usage": {"total_vram": measured(196592, "MB"), "used_vram": measured(283, "MB")},
        "throttle": {"accumulation_counter": 11240028, **quiet},
        **changes,
    }


def answers() -> dict[str, str]:
    """By subcommand, what ROCm 7's amd-smi prints of two GPUs with nothing wrong."""
    static = [
        {"gpu": i, "asic": {"market_name": "AMD Instinct MI300X"}, "bus": {"max_pcie_width": 16}}
        for i in (0, 1)
    ]
    idle = [{"process_info": "No running processes detected"}]
    peers = [{"gpu": i, "link_status": "ENABLED", "link_type": "XGMI"} for i in (0, 1)]
    links = [{**row, "link_status": ["U", "X", "U"]} for row in BOTH]
    return {
        "list": json.dumps(BOTH),
        "static": json.dumps({"gpu_data": static}),
        "metric": json.dumps({"gpu_data": [metric(0), metric(1)]}),
        "process": json.dumps([{"gpu": i, "process_list": idle} for i in (0, 1)]),
        "xgmi": json.dumps(BOTH, indent=4) + "\n" + json.dumps(links, indent=4),  # two documents
        "topology": json.dumps([{**row, "links": peers} for row in BOTH]),
    }


class Tools:
    """A folder in PATH with stand-ins of AMD's tools."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, name: str, script: str) -> None:
        """A shell script under a tool's name."""
        tool = self.folder / name
        tool.write_text("#!/bin/sh\n" + script)
        tool.chmod(0o755)

    def amd_smi(self, told: dict[str, str]) -> None:
        """An amd-smi that knows these subcommands, and only as JSON."""
        for name, text in told.items():
            (self.folder / f"{name}.json").write_text(text)
        self.install(
            "amd-smi",
            f'for last; do :; done; [ "$last" = --json ] || exit 2\n'
            f'[ -f {self.folder}/$1.json ] || {{ echo "invalid choice: $1" >&2; exit 2; }}\n'
            f"exec cat {self.folder}/$1.json\n",
        )


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    """No tools at first, and a node all of whose processes are seen."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(amd, "FOLDERS", ())
    monkeypatch.setattr(amd, "all_pids", lambda: True)
    return Tools(tmp_path)


def judged(seconds: float = 60) -> tuple[list[tuple[str, str, str]], str]:
    """Code, level and subject of what is wrong with the GPUs of this node; and all notes."""
    facts = json.loads(json.dumps(gpu.examine({"seconds": seconds})))
    assert gpus_misfit(facts) == ""
    results: list[CheckResult] = check_gpus([NodeAnswer(Node("a"), facts)])
    bad = [(r.code, r.level, r.subjects[0].id) for r in results if r.level in ("fail", "warn")]
    return bad, " ".join(r.seen for r in results if r.level == "skip")


def test_two_gpus_with_nothing_wrong(tools: Tools) -> None:
    """No result and no note; all facts are there."""
    tools.amd_smi(answers())
    assert judged() == ([], "")
    first = gpu.examine({})["gpus"][0]
    assert first["name"] == "AMD Instinct MI300X"
    assert first["memory_total"] == 196592 << 20
    assert first["nvlinks"] == [True, True]


def test_every_fault_of_one_gpu(tools: Tools) -> None:
    """All are named for GPU 0, none for GPU 1, which supports next to nothing."""
    told = answers()
    sick = metric(
        0,
        ecc={"total_uncorrectable_count": 3},
        mem_usage={"total_vram": measured(196592, "MB"), "used_vram": measured(90000, "MB")},
        pcie={"width": 8},
        throttle={"hbm_thermal_violation_status": "ACTIVE", "ppt_violation_status": "ACTIVE"},
    )
    poor = {
        "gpu": 1,
        "ecc": "N/A",
        "pcie": "N/A",
        "throttle": {},
        "mem_usage": {"used_vram": "N/A"},
    }
    told["metric"] = json.dumps({"gpu_data": [sick, poor]})
    told["xgmi"] = json.dumps({"link_status": [{"gpu": 0, "link_status": ["SELF", "U/D"]},
                                               {"gpu": 1, "link_status": "N/A"}]})  # fmt: skip
    tools.amd_smi(told)
    bad, notes = judged()
    assert bad == [
        ("UH841", "fail", "a gpu 0"), ("UH842", "fail", "a gpu 0"), ("UH844", "fail", "a gpu 0"),
        ("UH845", "fail", "a gpu 0"), ("UH847", "warn", "a gpu 0"),
    ]  # fmt: skip
    assert notes == ""


def test_processes_and_what_only_looks_like_a_fault(tools: Tools) -> None:
    """A busy GPU, one at its limit of power, and one that cannot tell the state of its links."""
    told = answers()
    busy = {"process_info": {"name": "python", "pid": 4242, "mem_usage": measured(5, "B")}}
    told["process"] = json.dumps(
        [{"gpu": 0, "process_list": [busy]}, {"gpu": 1, "process_list": []}]
    )
    power = {**metric(0)["throttle"], "ppt_violation_status": "ACTIVE"}
    slow = metric(1, power={"throttle_status": "THROTTLED"}, throttle="N/A")
    told["metric"] = json.dumps([metric(0, throttle=power), slow])
    told["xgmi"] = json.dumps([{"gpu": i, "link_status": ["D", "D"]} for i in (0, 1)])
    tools.amd_smi(told)
    assert judged() == ([("UH841", "warn", "a gpu 0"), ("UH844", "warn", "a gpu 1")], "")


def test_an_older_version(tools: Tools) -> None:
    """Bare lists and numbers, the older topology; what it does not know is a note."""
    told = answers()
    old = {"gpu": 0, "mem_usage": {"total_vram": 65520, "used_vram": 20000},
           "ecc": {"total_uncorrectable_count": "2"}}  # fmt: skip
    told["metric"] = "WARNING: not in the groups render, video\n" + json.dumps([old])
    shut = {"gpu_0": "ENABLED", "gpu_1": "DISABLED"}
    told["topology"] = json.dumps([{"gpu": 0, "link_accessibility": shut}, {"gpu": 1}])
    del told["xgmi"]
    tools.amd_smi(told)
    bad, notes = judged()
    assert bad == [
        ("UH841", "fail", "a gpu 0"),
        ("UH842", "fail", "a gpu 0"),
        ("UH848", "warn", "a"),
    ]
    assert "amd-smi xgmi printed nothing (exit code 2) invalid choice: xgmi" in notes
    assert "amd-smi metric reports nothing about GPU 1" in notes


def test_rocm_smi_where_there_is_no_amd_smi(tools: Tools) -> None:
    """Memory and processes of the node; what its JSON does not have is said."""
    card = {"VRAM Total Memory (B)": str(64 << 30), "VRAM Total Used Memory (B)": str(9 << 30),
            "Temperature (Sensor junction) (C)": "61.0"}  # fmt: skip
    told = {"card0": card, "card1": {**card, "VRAM Total Used Memory (B)": "1024"}}
    tools.install("rocm-smi", f"echo '{json.dumps(told)}'")
    bad, notes = judged()
    assert bad == [("UH841", "fail", "a gpu 0")]
    assert "rocm-smi has no memory errors" in notes
    told["system"] = {"PID4242": "python, 1, 9663676416, 0, 0"}
    tools.install("rocm-smi", f"echo '{json.dumps(told)}'")
    assert judged()[0] == [("UH841", "warn", "a gpu 0")]


def test_a_tool_that_hangs(tools: Tools) -> None:
    """All questions together end; the reason is told."""
    tools.install("amd-smi", "sleep 1000 & exec sleep 1000")
    bad, notes = judged(0.2)
    assert bad == []
    assert "no GPU to check" in notes
    assert "amd-smi list did not finish in time" in notes


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exec cat /dev/zero", "printed more than"),
        ("exec yes '['", "printed more than"),
        ("exit 1", "printed nothing (exit code 1)"),
        ("echo driver not loaded >&2; exit 4", "(exit code 4) driver not loaded"),
        ("printf '%0100000d' 0 | tr 0 '['", "names no GPU"),
        ("""echo '[{"gpu": true}, {"gpu": -1}, {"gpu": 1e9}, 7, [[]]]'""", "names no GPU"),
        ("printf '\\377\\376{\\033[31m'", "names no GPU"),
    ],
)
def test_what_is_no_answer(
    tools: Tools, monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    """It is a note in one line, and bounded."""
    monkeypatch.setattr(programs, "MAX_SAID", 1 << 18)
    tools.install("amd-smi", script)
    bad, notes = judged()
    assert bad == []
    assert said in notes
    assert "\033" not in notes


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5)
    | st.sampled_from(["N/A", "ACTIVE", "U", "D", "DISABLED"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["value", "unit", "process_info", "pid", "gpu", "gpu_1", "used_vram",
                         "total_uncorrectable_count", "throttle_status", "width"]),
        inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
FIELDS = ("mem_usage", "ecc", "pcie", "power", "throttle", "temperature", "process_list", "links",
          "link_status", "link_accessibility", "asic", "bus")  # fmt: skip


@given(st.lists(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=8), max_size=3))
@settings(deadline=None)
def test_whatever_stands_in_a_row_the_shape_is_kept(rows: list[dict[str, Any]]) -> None:
    """Facts are of the shape that is judged, whatever the tools print."""
    numbered = [{**row, "gpu": index} for index, row in enumerate(rows)]
    told = dict.fromkeys(amd.AMD_SMI, amd.rows_of([numbered]))
    facts = {"vendor": "AMD", "acs": [], "error": "", "all_pids": True, "notes": [],
             "looked": True, "lost": [],
             "gpus": [amd.described(index, told) for index in range(len(rows))],
             "without_p2p": amd.without_access(told["topology"])}  # fmt: skip
    assert gpus_misfit(json.loads(json.dumps(facts))) == ""
    check_gpus([NodeAnswer(Node("a"), facts)])


@given(st.lists(JSON.filter(lambda value: isinstance(value, list | dict)), max_size=4))
@settings(deadline=None)
def test_documents_in_a_row(values: list[Any]) -> None:
    """All of them are found, with lines of text between them."""
    text = "".join("a warning\n" + json.dumps(value) + "\n" for value in values)
    assert json.dumps(programs.documents(text)) == json.dumps(values)
