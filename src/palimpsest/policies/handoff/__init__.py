"""Codex's compaction: a hand-over to a summary, when it is due, and what it keeps."""
