"""What a rehearsal knows beyond its dumps, put to the report that the analysis makes of them."""
