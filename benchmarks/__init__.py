"""What unhang costs, measured: `python -m benchmarks` writes docs/benchmarks.md.

A benchmark is a function `(*, quick: bool) -> Section` in the `SECTIONS` of its script; `__main__`
lists the scripts. No test asserts a time.
"""
