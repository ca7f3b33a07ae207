"""Decode dumps straight into columns, with a library in Rust that comes with the package.

`library` finds and loads it, `translate` turns its numbers into those of the case, `loading` drives
it over many files. Whatever is unusual about a file is left to the Python reader, so there is one
meaning and two speeds; tests hold them equal. The Rust sources are in `native/` of the repository.
"""
