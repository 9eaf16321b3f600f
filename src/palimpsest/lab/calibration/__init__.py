"""Calibration of the lab: what it simulates and predicts, held against what sessions recorded."""
