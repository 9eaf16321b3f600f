"""Transcripts of Claude Code, in and out."""
