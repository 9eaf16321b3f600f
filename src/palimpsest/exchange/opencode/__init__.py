"""Reads and writes sessions of OpenCode."""
