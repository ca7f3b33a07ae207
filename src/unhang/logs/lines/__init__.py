"""One line of a log: whether it is worth a look, whose it is, when it was, what it wraps."""
