"""Rollouts of Codex, in and out."""
