"""The fold of the profile `palimpsest`, which is computed from the log, and its narrative."""
