"""The fold that is computed from the log, and its narrative."""
