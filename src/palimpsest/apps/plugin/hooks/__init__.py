"""Hooks that other agents run: what they get, what they say, and the digest of a transcript that they keep."""
