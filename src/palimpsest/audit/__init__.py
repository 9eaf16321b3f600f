"""Audit of edits: evidence from the log, the gate, loss, cache state and prices."""
