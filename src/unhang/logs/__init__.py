"""Logs of distributed jobs: lines to per-rank streams, known messages, tracebacks, first failure.

`rules` is the reviewed table of what messages mean; `prefixes` tells whose a line is; `scan` runs
both over gigabytes; `failure` says which message came first and is no consequence of another.
Nothing here draws, and nothing decides about a whole job: that is the analysis' work.
"""
