"""Limits of tool results, before they are recorded."""
