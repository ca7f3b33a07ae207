"""Which calls belong together, who waits for whom in them, and where the waiting leads."""
