"""The rules of tests/conftest.py, tried on a small suite of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).parents[1] / "conftest.py"
SUITE = {
    "plain": "def test_it(): pass\n",
    "gpu": "@pytest.mark.gpu\ndef test_it(): pass\n",
    "missing": "@pytest.mark.debian('no-such-program')\ndef test_it(): pass\n",
    "present": "@pytest.mark.debian('sh')\ndef test_it(): pass\n",
    "inside": "def test_it(): pytest.skip('because')\n",
    "module": "pytest.skip('because', allow_module_level=True)\n",
}
TORCH_WITHOUT_GPU = "class cuda:\n    is_available = lambda: False\n"


def outcomes(directory: Path, *, ci: bool) -> dict[str, str]:
    """What pytest says of each file of the suite."""
    directory.mkdir()
    shutil.copy(CONFTEST, directory)
    (directory / "torch.py").write_text(TORCH_WITHOUT_GPU)
    (directory / "pytest.ini").write_text("[pytest]\nmarkers = gpu\n debian\n")
    for name, text in SUITE.items():
        (directory / f"test_{name}.py").write_text(f"import pytest\n{text}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "--continue-on-collection-errors", str(directory)],
        env={**os.environ, "CI": "true" if ci else "", "PYTHONPATH": str(directory)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = re.findall(
        r"^(PASSED|FAILED|ERROR|SKIPPED).*?test_(\w+)\.py", done.stdout, re.MULTILINE
    )
    return {name: word.lower() for word, name in lines}


def test_elsewhere_a_skip_is_a_skip(tmp_path: Path) -> None:
    """On a developer's machine, what cannot run is left out with its reason."""
    assert outcomes(tmp_path / "suite", ci=False) == {
        "plain": "passed",
        "gpu": "skipped",
        "missing": "skipped",
        "present": "passed",
        "inside": "skipped",
        "module": "skipped",
    }


def test_in_ci_only_a_missing_gpu_excuses(tmp_path: Path) -> None:
    """Any other skip makes the run fail, wherever it comes from."""
    assert outcomes(tmp_path / "suite", ci=True) == {
        "plain": "passed",
        "gpu": "skipped",
        "missing": "error",
        "present": "passed",
        "inside": "failed",
        "module": "error",
    }
