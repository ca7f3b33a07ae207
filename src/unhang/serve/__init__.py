"""Cases in a browser and over time: a server on the loopback, and what incidents share.

It reads cases and judges them; it writes nothing, and takes no evidence from anywhere.
"""
