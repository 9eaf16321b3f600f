"""Context sources: what the model reads about its instructions, environment and state, stated once and then as changes."""
