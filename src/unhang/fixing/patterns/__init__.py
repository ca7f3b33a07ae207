"""Patterns of faults that have a mechanical cure, one a module."""
