"""How right tools are on cases whose truth is known."""
