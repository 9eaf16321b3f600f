"""The search index over all sessions."""
