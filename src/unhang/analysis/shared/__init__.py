"""What all of the analysis speaks in: the situation, sites of ranks, claims and reasons."""
