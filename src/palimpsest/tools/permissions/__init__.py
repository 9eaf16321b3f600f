"""Decides whether a tool call may run: by mode, by the user's rules and by what the call does, never by what a text says."""
