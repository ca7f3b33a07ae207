"""What ranks of a rehearsal say, and who of them meets whom."""
