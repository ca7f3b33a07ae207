"""What a simulated job is: groups of ranks, and one program of steps per rank."""
