"""Programs of which it is known whether they get on, recorded, to score `unhang.activity` with."""
