"""Finds and imports sessions of other programs."""
