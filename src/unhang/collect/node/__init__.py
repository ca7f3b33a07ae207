"""What runs on a node: looks, reads, and writes one parcel on standard output.

Standard library only, Python 3.10 or newer, no installation: these modules travel. Nothing here
changes the node; the one thing that is asked of the job is a dump, from recorders that wait for it.
"""
