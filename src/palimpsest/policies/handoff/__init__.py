"""Codex's compaction as a policy."""
