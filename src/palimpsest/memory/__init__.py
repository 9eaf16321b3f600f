"""Memory that outlives a session: notes and their files, recall, extraction, consolidation, forgetting, and its tools."""
