"""Finding sessions: options that choose them, a list to pick one from, and what a search found in them."""
