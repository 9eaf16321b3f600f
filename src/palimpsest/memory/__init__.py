"""Memory that outlives a session: notes, their weights and conflicts, and what they contribute to a session."""
