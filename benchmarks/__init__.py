"""What unhang costs, measured: `python -m benchmarks.run_all` writes docs/benchmarks.md.

A benchmark is a module with `main(*, quick: bool = False) -> Section`; `run_all.MODULES` lists
them. Each can be run by itself (`python -m benchmarks.startup`) and then only prints. No test
asserts a time.
"""
