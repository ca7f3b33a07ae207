"""The communication test: who takes part, what its ranks found, and what explains a failure."""
