"""Kept until the last source takes these from `unhang.analysis.judgement`."""

from unhang.analysis.judgement import status_of, summary_of

__all__ = ["status_of", "summary_of"]
