"""From the bytes of a pickle to plain values, without trusting one of them."""
