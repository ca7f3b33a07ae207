"""Findings, each in a file of its own: its kind, facts, rule, words, and the source of its page."""
