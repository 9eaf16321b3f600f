"""Reads sessions of OpenCode."""
