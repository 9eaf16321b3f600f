"""Measures recall: data with known evidence, scores, a full-text floor, training of the weights, and latency."""
