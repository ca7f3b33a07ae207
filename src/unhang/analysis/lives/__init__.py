"""What was seen of each rank, from start to end, and the rules that conclude from it."""
