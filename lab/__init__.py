"""Jobs that are stuck on purpose: simulated, live, and how well they are diagnosed."""
