"""Reasoning from columns to a verdict: pure functions, no files, no drawing, no clock."""

from __future__ import annotations

from unhang.case import Case
from unhang.report import Report

__all__ = ["diagnose"]


def diagnose(case: Case, *, slow: bool = False) -> Report:
    """Find out why the job of this case does not move."""
    raise NotImplementedError
