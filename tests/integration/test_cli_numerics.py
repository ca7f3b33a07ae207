"""`unhang numerics` with real torch: two dtypes, NaN, two and more ranks on Gloo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from guide_page import on_the_page
from ports import free_port
from valid_reports import report_in

CHECK = """\
import torch

class Odd(torch.nn.Module):
    def forward(self, x):
        return x * (1.5 if x.dtype == torch.bfloat16 else 1.0)

def wrong():
    layers = torch.nn.Linear(8, 8), Odd(), torch.nn.Linear(8, 4)
    return torch.nn.Sequential(*layers), (torch.randn(4, 8),)

def good():
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()), (torch.randn(4, 8),)

def infinite():
    return torch.log, (torch.tensor([0.0, 1.0]),)

def replica():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    if torch.distributed.get_rank() == 2:
        model.weight.data[0, 0] += 0.5
    return model

def nonsense():
    return 3

def deaf():
    return lambda x: torch.ones(4) * 2, (torch.ones(4),)

def guide():
    def do_math(device, dtype):
        inv_freq = 10 ** (torch.arange(0, 10, device=device, dtype=dtype) / 10)
        return inv_freq.cpu()
    return do_math, (torch.device("cpu"), torch.float32)

class Steps(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.twice = torch.nn.Linear(2, 2, bias=False)
        torch.nn.init.constant_(self.twice.weight, 100.0)

    def forward(self, x):
        for _ in range(4):
            x = self.twice(x)
        return x

def overflow():
    return Steps(), (torch.ones(1, 2),)

def mute():
    return lambda x: "no tensor", (torch.ones(4),)

def broken():
    raise ValueError("no weights here")
"""


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's file."""
    path = tmp_path_factory.mktemp("numerics") / "check.py"
    path.write_text(CHECK)
    return path


def numerics(*words: str) -> tuple[int, str, str]:
    """Run the command; exit code, stdout, stderr."""
    command = [sys.executable, "-m", "unhang", "numerics", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    return done.returncode, done.stdout, done.stderr


def report(check: Path, function: str) -> tuple[int, dict[str, Any]]:
    """Compare float32 with bfloat16 on the CPU."""
    sides = ("--on", "cpu", "--on", "cpu/bfloat16")
    code, out, err = numerics(f"{check}:{function}", *sides, "--ops", "--format", "json")
    assert "Traceback" not in err
    return code, report_in(out)


def test_the_first_operator_that_differs(check: Path) -> None:
    """The multiplication in the odd module, not the layer behind it."""
    code, found = report(check, "wrong")
    assert (code, found["findings"][0]["code"]) == (1, "UH870")
    assert "aten.mul" in found["summary"]


def test_rounding_is_no_difference(check: Path) -> None:
    """What bfloat16 cannot hold is expected."""
    code, found = report(check, "good")
    assert (code, found["status"]) == (0, "healthy")


def test_a_dtype_without_effect_compares_nothing(check: Path) -> None:
    """A program that makes its own tensors is the same twice; one without any shows nothing."""
    code, found = report(check, "deaf")
    assert (code, found["status"]) == (3, "insufficient")
    assert "Nothing shows that bfloat16 took effect" in found["summary"]
    code, found = report(check, "mute")
    assert (code, found["status"]) == (3, "insufficient")
    assert "Nothing could be compared" in found["summary"]


def test_the_guides_example_in_half_precision(check: Path, tmp_path: Path) -> None:
    """How many elements differ, and the greatest differences, as assert_close counts them."""
    sides = ("--on", "cpu", "--on", "cpu/float16", "--rtol", "0", "--atol", "0")
    code, out, _ = numerics(f"{check}:guide", *sides, "--format", "json")
    assert code == 1
    script = tmp_path / "guide.py"
    script.write_text(
        "import torch\n"
        "def do_math(dtype):\n"
        "    return (10 ** (torch.arange(0, 10, dtype=dtype) / 10)).double()\n"
        "torch.testing.assert_close(do_math(torch.float32), do_math(torch.float16), rtol=0, atol=0)"
    )
    said = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    ).stderr
    number = said.partition("Mismatched elements: ")[2].partition(" /")[0]
    absolute = float(said.partition("absolute difference: ")[2].split()[0])
    relative = float(said.partition("relative difference: ")[2].split()[0])
    index = said.partition("absolute difference: ")[2].partition("index ")[2].split("\n")[0]
    evidence = report_in(out)["findings"][0]["evidence"][1]
    assert f"{number} of 10 elements differ" in evidence
    assert f"max error {absolute:.6g} absolute at index {index}" in evidence
    assert f"{relative:.6g} relative" in evidence
    on_the_page("torch.testing.assert_close(", evidence)


def test_what_is_equal_is_equal_exactly(check: Path) -> None:
    """Nothing is allowed, and nothing differs."""
    code, out, _ = numerics(
        f"{check}:guide", "--on", "cpu", "--on", "cpu", "--rtol", "0", "--atol", "0"
    )
    assert code == 0
    assert "equal" in out


def test_the_step_at_which_it_overflows(check: Path) -> None:
    """The layer, which of its calls, and where in its output."""
    sides = ("--on", "cpu", "--on", "cpu/float16")
    code, out, _ = numerics(f"{check}:overflow", *sides, "--format", "json")
    found = report_in(out)["findings"]
    assert code == 1
    assert found[0]["summary"] == (
        "On cpu/float16 module twice (call 3) is the first to give NaN or infinity."
    )
    assert found[0]["evidence"] == ["2 of 2 values, the first at index (0, 0): inf"]
    on_the_page("torch.isnan(t).any()", found[0]["summary"])


def test_the_first_infinity(check: Path) -> None:
    """log(0) is named on both sides."""
    code, found = report(check, "infinite")
    assert code == 1
    assert {f["code"] for f in found["findings"]} == {"UH871"}
    assert "aten.log" in found["summary"]


def test_a_rank_whose_parameters_differ(check: Path, tmp_path: Path) -> None:
    """One of three real ranks holds another weight."""
    port = str(free_port())
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "unhang", "numerics", f"{check}:replica", "--across-ranks",
               "--format", "json", "-o", str(out)]  # fmt: skip
    job = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [subprocess.Popen(command, env={**os.environ, **job, "RANK": str(rank)})
             for rank in range(3)]  # fmt: skip
    assert [rank.wait(timeout=600) for rank in ranks] == [1, 0, 0]
    finding = report_in(out.read_text())["findings"][0]
    assert (finding["code"], finding["culprits"]) == ("UH872", [2])
    assert "weight" in finding["evidence"][0]
    assert "0.5" in finding["evidence"][0]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["{check}:good"], 2),
        (["{check}:good", "--on", "cpu", "--on", "cpu", "--rtol", "0"], 2),
        (["{check}:good", "--on", "cpu", "--on", "cpu", "--rtol", "-1", "--atol", "0"], 2),
        (["{check}:good", "--on", "cpu", "--on", "cpu/int8"], 2),
        (["{check}:good", "--on", "cpu", "--on", "warp9"], 2),
        (["{check}:none", "--on", "cpu", "--on", "cpu"], 2),
        (["{check}:nonsense", "--on", "cpu", "--on", "cpu"], 2),
        (["{check}:broken", "--on", "cpu", "--on", "cpu"], 3),
        (["/no/such.py:f", "--on", "cpu", "--on", "cpu"], 3),
        (["{check}:replica", "--across-ranks"], 2),
    ],
)
def test_bad_input(check: Path, words: list[str], code: int) -> None:
    """One sentence, a hint, the right exit code."""
    got, _, err = numerics(*(word.format(check=check) for word in words))
    assert got == code
    assert "Traceback" not in err
    assert "hint: " in err


def test_the_users_file_finds_its_own_modules(tmp_path: Path) -> None:
    """Beside it, though our own process imports nothing of the working directory."""
    (tmp_path / "parts.py").write_text("import torch\nmade = torch.nn.Linear(2, 2)\n")
    (tmp_path / "check.py").write_text(
        "import torch\nfrom parts import made\n\n"
        "def build():\n    return made, (torch.ones(1, 2),)\n"
    )
    code, _, err = numerics(f"{tmp_path}/check.py:build", "--on", "cpu", "--on", "cpu")
    assert (code, err) == (0, "")
