"""The command that is run: its environment, its streams, its life and its exit code."""
