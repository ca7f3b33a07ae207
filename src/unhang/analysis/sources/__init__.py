"""What stacks, exits, logs, traces and other commands add to what dumps show."""
