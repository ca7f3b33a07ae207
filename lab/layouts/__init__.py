"""Which parallel jobs the simulator can make."""
