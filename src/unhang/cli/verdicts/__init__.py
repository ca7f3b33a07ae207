"""Commands that judge: each ends in a report."""
