"""Commands that gather evidence, or show what is in a case."""
