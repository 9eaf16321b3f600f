"""Finding and importing the sessions of other programs."""
