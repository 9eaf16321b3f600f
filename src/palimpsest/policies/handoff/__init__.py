"""Codex's compaction: a handoff to a summary, when it is due, and what it keeps."""
