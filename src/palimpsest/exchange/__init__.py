"""Reads sessions of other agents into logs, and writes logs as their files or as readable pages."""
