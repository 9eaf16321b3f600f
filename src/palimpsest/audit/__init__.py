"""Audit of edits: tool calls, evidence from the log, the gate, loss, cache state and prices."""
