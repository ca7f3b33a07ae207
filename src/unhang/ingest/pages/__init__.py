"""The ring of last calls of a rank that left no dump, read, and made into one."""
