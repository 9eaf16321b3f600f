"""A gateway on the loopback: forwards the requests of other agents to their provider, records them, and edits their context."""
