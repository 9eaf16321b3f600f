"""The place of the command in 0.2; it goes with 0.5."""
