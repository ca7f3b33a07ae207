"""Evidence from running jobs: which processes are ranks, their stacks, and what nodes hold.

The edges are here: /proc, ptrace, other machines. Everything that must run on a bare node uses the
standard library only. It refuses to judge.
"""
