"""Policies that compact a conversation into a summary written by a model, or into running notes."""
