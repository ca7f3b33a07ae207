"""What is no dump, and is made into one: a rank's ring of last calls, a log of its calls."""
