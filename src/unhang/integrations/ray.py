"""For Ray Train: `TorchTrainer(watched(train_loop), …)`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")


def watched(loop: Callable[..., Result]) -> Callable[..., Result]:
    """A training loop whose workers are armed, report in a phase of its own, and dump at the end.

    Args:
        loop: As `TorchTrainer` takes it; it may call `unhang.step` and `unhang.phase`.
    """

    @functools.wraps(loop)
    def train(*args: Any, **kwargs: Any) -> Result:  # noqa: ANN401 - as the loop has them
        import ray.train

        from unhang.record.arm import arm, dump, phase

        arm()
        report = ray.train.report

        @functools.wraps(report)
        def told(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as Ray has them
            phase("report")
            try:
                return report(*args, **kwargs)
            finally:
                phase("")

        ray.train.report = told
        try:
            return loop(*args, **kwargs)
        except Exception:
            dump()
            raise
        finally:
            ray.train.report = report

    return train
