"""Checks of nodes: the catalogue, and pure functions over what the nodes said."""
