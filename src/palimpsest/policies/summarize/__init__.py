"""Policies that let a model summarize the conversation."""
