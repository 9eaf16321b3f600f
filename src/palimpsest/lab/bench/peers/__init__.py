"""Peers that do the same work in the same run, where they are installed."""
