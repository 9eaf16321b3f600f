"""Memory that outlives a session: what is recalled for a query, and in which order."""
