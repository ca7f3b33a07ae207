"""What runs in the ranks of a rehearsal: standard library, and the user's torch."""
