"""Which files there are, what they are, and their bytes: folders, archives, companions."""
