"""Permissions: which tool calls run, which wait for the user, and which are refused."""
