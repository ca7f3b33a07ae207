"""From one dump of any version to rows of the final columns."""
