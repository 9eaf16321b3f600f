"""Measures recall: data with known evidence, the scorer, the floor of a full-text index, training of the weights, and latency."""
