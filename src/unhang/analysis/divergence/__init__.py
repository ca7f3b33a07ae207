"""Where the programs of ranks part: the first call that one side made and the other did not."""
