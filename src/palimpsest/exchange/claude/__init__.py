"""Reads and writes transcripts of Claude Code."""
