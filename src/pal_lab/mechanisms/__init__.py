"""Mechanisms of the imitated systems: what each does with context, what its profiles do here, and where ours differs."""
