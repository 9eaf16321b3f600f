"""Synthetic sessions with the statistics of recorded ones."""
