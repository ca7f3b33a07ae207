"""Real sets of dumps, whole and with dumps taken away."""
