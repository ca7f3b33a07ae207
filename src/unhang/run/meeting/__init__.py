"""How the supervisors of one job act as one: over a shared directory, or over the job's network."""
