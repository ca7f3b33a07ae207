"""What surrounds a verdict: code where ranks stand, whose job it is, what was there before."""
