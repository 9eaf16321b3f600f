"""Reads and writes rollouts of Codex."""
