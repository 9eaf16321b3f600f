"""What the events of a session support: results of the workspace, commands to remember, and notes that a model proposes and quotes."""
