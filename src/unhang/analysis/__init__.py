"""Reasoning from columns to a verdict: pure functions, no files, no drawing, no clock."""

from __future__ import annotations

from unhang.analysis.steps import diagnose

__all__ = ["diagnose"]
