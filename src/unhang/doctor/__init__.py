"""Preflight checks of nodes, networks, GPUs and collectives, before a job or next to a sick one.

`asking` reaches nodes, `agents` look at one, the check modules judge what they saw (pure functions
over facts), and `reporting` turns results into a Report. Nothing is ever changed on a node.
"""
