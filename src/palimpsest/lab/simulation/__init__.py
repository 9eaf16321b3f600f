"""Replaying recorded sessions through the engine."""
