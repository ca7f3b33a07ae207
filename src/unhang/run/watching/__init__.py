"""Seeing the ranks of the command: who they are, how far they have come, whether they hang."""
