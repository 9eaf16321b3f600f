"""Synthetic sessions that look like recorded ones."""
