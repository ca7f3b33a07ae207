"""For Lightning: `Trainer(callbacks=[ForLightning()])`."""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

from unhang.record.arm import arm, dump, phase, step


class ForLightning(Callback):  # type: ignore[misc]  # Lightning is not there to be checked
    """Arms each rank; tells its step, and when it evaluates or saves; dumps at an exception."""

    def setup(self, *_: Any, **__: Any) -> None:  # noqa: ANN401 - what Lightning gives
        """The rank begins."""
        arm()

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:  # noqa: ANN401 - same
        """A step: whatever came before it is over."""
        phase("")
        step(trainer.global_step)

    def on_validation_start(self, *_: Any) -> None:  # noqa: ANN401 - same
        """It evaluates."""
        phase("evaluation")

    def on_validation_end(self, *_: Any) -> None:  # noqa: ANN401 - same
        """It has evaluated."""
        phase("")

    on_test_start, on_test_end = on_validation_start, on_validation_end

    def on_save_checkpoint(self, *_: Any) -> None:  # noqa: ANN401 - same
        """It saves; Lightning does not tell the end, which the next step does."""
        phase("checkpoint")

    def on_exception(self, *_: Any) -> None:  # noqa: ANN401 - same
        """What the rank had recorded, before it goes."""
        dump()
