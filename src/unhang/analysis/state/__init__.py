"""What each rank has called, finished and left open, as columns over calls and ranks."""
