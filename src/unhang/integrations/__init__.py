"""A few lines for training frameworks: arm, tell steps and phases, leave a dump where one fails.

Each module belongs to one framework, imports it, and nothing else does: `lightning`, `trainer`
(transformers; with accelerate below it), `ray` and `pytest_plugin`. `unhang run` arms jobs without
them.
"""
