"""Stacks of many processes: readers of saved ones, one tree over ranks, what a frame means.

Importing this package costs only the standard library, because the collector that travels to bare
nodes uses it; the readers are in `unhang.stacks.reading`, the tree, which needs numpy, in
`unhang.stacks.tree`.
"""
