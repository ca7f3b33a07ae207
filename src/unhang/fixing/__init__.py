"""From a fault that a rehearsal found to a diff on the user's lines.

Each pattern (`patterns/`) reads the script around the lines of the finding and proposes other
lines, or says why it cannot. A proposal is shown only if a rehearsal of the changed script is clean
(`proposing`). No file of the user's is ever written.
"""
