"""Decode large sets of pickled dumps straight into columns, with compiled code (extra `fast`).

`kernel` walks the bytes, `memory` holds what it fills, `translate` turns its numbers into those of
the case, `loading` drives it over many files. Whatever is unusual about a file is left to the
general path, so there is one meaning and two speeds; tests hold them equal.
"""
