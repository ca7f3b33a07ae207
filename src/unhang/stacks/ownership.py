"""Whose code a frame is: the user's, an installed library's, the interpreter's, or native.

Tools write the same file with and without its directories (py-spy's text keeps only the package's
part), so all comparing of files is here. It refuses to open any of them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache

from unhang.model import Frame
from unhang.stacks.once import each_once

_INSTALLED = re.compile(
    r"(?:^|/)(?:(?:site|dist)-packages|lib(?:64|32)?/python\d[\d.]*t?(?:/lib-dynload)?|"
    r"python\d[\d.]*\.zip)(?:/|$)"
)
_RECORDERS = ("unhang/record/", "unhang/telltale/", "unhang/rehearse/inside/")
_OURS_AND_TORCHS = (
    *_RECORDERS, "megatron/core/", "torch/autograd/", "torch/distributed/",
    "torch/multiprocessing/", "torch/nn/modules/", "torch/nn/parallel/", "torch/optim/",
    "torch/utils/data/",
)  # fmt: skip
"""Wherever they lie: they also run from their sources. Megatron's training loop is a user's own."""
_PACKAGES = frozenset(
    {
        "accelerate", "apex", "av", "boto3", "botocore", "click", "composer", "datasets",
        "deepspeed", "fairscale", "fsspec", "gcsfs", "google", "grpc", "h5py",
        "huggingface_hub", "IPython", "joblib", "lightning", "lightning_fabric",
        "mlflow", "monai", "mpi4py", "multiprocess", "numba", "numpy", "nvidia", "omegaconf",
        "optree", "pandas", "peft", "PIL", "polars", "psutil", "pyarrow", "pytorch_lightning",
        "ray", "requests", "s3fs", "safetensors", "sentencepiece", "skimage", "sklearn",
        "streaming", "tensorboard", "tensordict", "tensorflow", "timm", "tokenizers", "torch",
        "torchaudio", "torchdata", "torchvision", "tqdm", "transformer_engine", "transformers",
        "triton", "trl", "unhang", "urllib3", "vllm", "wandb", "webdataset", "xformers", "zmq",
    }
)  # fmt: skip


def same_file(path: str, end: str) -> bool:
    """Whether a frame's file is the one that ends so ("torch/utils/data/dataloader.py").

    Whole components count: "mythreading.py" is not "threading.py".
    """
    slashed = path.replace("\\", "/")
    return slashed == end or slashed.endswith(f"/{end}")


def under(path: str, folder: str) -> bool:
    """Whether a frame's file lies in a folder, given from its package on ("torch/utils/data/")."""
    return f"/{folder}" in f"/{path}".replace("\\", "/")


def bare_name(function: str) -> str:
    """The function's own name: "wait" of "Condition.wait" (Python qualifies since 3.11)."""
    return function.rpartition(".")[2]


def installed_at(path: str) -> int:
    """Where in a path the packages or the library of an installed Python begin; -1 for nowhere."""
    found = _INSTALLED.search(path)
    return found.start() if found else -1


def is_native(frame: Frame) -> bool:
    """Whether a frame is of C, C++ or the like: its file is a library or a source of those."""
    return not frame.file.endswith((".py", ".pyc", ".ipynb")) and not frame.file.startswith("<")


@lru_cache(maxsize=65_536)
def is_library(frame: Frame) -> bool:
    """Whether a frame is not the user's own code: native, the interpreter's or installed."""
    path = frame.file.replace("\\", "/")
    if is_native(frame) or path.startswith("<frozen") or installed_at(path) >= 0:
        return True
    if any(under(path, folder) for folder in _OURS_AND_TORCHS):
        return True
    if path.startswith(("/", "<")):
        return False
    top = path.partition("/")[0]
    name = top.removesuffix(".py")
    return name in sys.stdlib_module_names or (name in _PACKAGES and top != path)


def is_recorders(frame: Frame) -> bool:
    """Whether a frame is of our own recorder or rehearsal, through which calls go."""
    return any(under(frame.file, folder) for folder in _RECORDERS)


@each_once
def without_recorder(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """A stack without the frames of our own recorder, through which it was seen."""
    own = tuple(frame for frame in frames if not is_recorders(frame))
    return frames if len(own) == len(frames) else own  # the same object, of which more is known


def starts_a_thread(frame: Frame) -> bool:
    """Whether a frame is the beginning of a thread which another one has started."""
    if is_native(frame):
        return frame.function.startswith(("clone", "__clone", "start_thread", "thread_start"))
    return bare_name(frame.function) == "_bootstrap" and same_file(frame.file, "threading.py")


def user_frame(frames: Iterable[Frame]) -> Frame | None:
    """The innermost frame of the user's own code; None where there is none."""
    return next((frame for frame in frames if not is_library(frame)), None)


def shown_frame(frames: Sequence[Frame]) -> Frame | None:
    """The frame that a person should see first: the user's innermost, else the innermost one.

    Args:
        frames: Innermost first; those of our own recorder are passed over.
    """
    return user_frame(frames) or next(iter(without_recorder(tuple(frames)) or frames), None)
