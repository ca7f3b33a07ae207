"""Runs what reports advise."""
