"""What the events of a session support: which results are those of the workspace, and what the user asks to remember."""
