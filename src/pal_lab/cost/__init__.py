"""Experiments about the cost of context: the curve, calibration, tuning, the continuation test, and growth."""
