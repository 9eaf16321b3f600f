"""What the terminal shows: a session as blocks, and blocks as lines."""
