"""The agent in a terminal."""
