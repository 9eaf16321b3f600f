"""What a command works on: its home folder, the sessions and indexes in it, and the engine with its settings."""
