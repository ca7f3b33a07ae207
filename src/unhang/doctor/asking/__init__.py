"""Nodes, and how they are asked: through a launcher, or as the ranks of a job that has begun."""
