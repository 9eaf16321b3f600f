"""Transcript formats of agents that live in an editor."""
