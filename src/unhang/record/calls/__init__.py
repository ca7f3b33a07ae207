"""The calls of this process: where they are taken hold of, and the ring that remembers them."""
