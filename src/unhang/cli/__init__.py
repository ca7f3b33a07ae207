"""The command line: `main.py` finds the command, one thin module a command does the rest."""
