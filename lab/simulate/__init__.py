"""Run jobs that exist on paper only, and write what they would have left."""
