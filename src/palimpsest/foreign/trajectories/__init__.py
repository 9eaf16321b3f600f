"""Transcript formats of agents that run on benchmarks: one document for each run."""
