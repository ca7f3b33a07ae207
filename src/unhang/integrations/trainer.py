"""For the Trainer of transformers, and so for accelerate: `Trainer(callbacks=[ForTrainer()])`.

A loop of your own with accelerate calls `unhang.step` and `unhang.phase` itself.
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from unhang.record.arm import arm, phase, step


class ForTrainer(TrainerCallback):  # type: ignore[misc]  # transformers is not there to be checked
    """Arms each rank; tells its step, and when it evaluates or saves."""

    def on_train_begin(self, *_: Any, **__: Any) -> None:  # noqa: ANN401 - what the Trainer gives
        """The rank begins."""
        arm()

    def on_step_begin(self, args: Any, state: Any, *_: Any, **__: Any) -> None:  # noqa: ANN401, ARG002 - same
        """A step: whatever came before it is over."""
        phase("")
        step(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401, ARG002 - same
        """What the Trainer will do before the next step; it tells only the ends of both."""
        if control.should_evaluate:
            phase("evaluation")
        elif control.should_save:
            phase("checkpoint")

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401, ARG002 - same
        """It has evaluated."""
        phase("checkpoint" if control.should_save else "")

    def on_save(self, *_: Any, **__: Any) -> None:  # noqa: ANN401 - same
        """It has saved."""
        phase("")
