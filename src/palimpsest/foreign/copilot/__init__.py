"""Reads sessions of Copilot CLI."""
