"""Stacks of many ranks as one prefix tree, in numpy, and the ways to show it."""
