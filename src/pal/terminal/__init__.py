"""The agent in a terminal: its screen, its input, its session, and its slash commands."""
