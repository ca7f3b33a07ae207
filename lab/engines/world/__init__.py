"""Loops of serving engines, shrunk: each file stands where the engine has its own.

`serving` copies them below a folder of installed packages, so that stacks show the engine's places.
"""
