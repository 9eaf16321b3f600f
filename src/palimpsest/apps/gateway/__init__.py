"""A gateway on the loopback: passes the requests of other agents on to their provider, records them, and edits what they show."""
