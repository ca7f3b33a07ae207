"""Who is in which group, by what all dumps of a job say."""
