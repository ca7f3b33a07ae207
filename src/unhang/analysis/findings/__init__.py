"""Rules: what the situation of a job means, each kind of trouble in a module of its own."""
