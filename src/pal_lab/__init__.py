"""The laboratory: benchmarks, calibration, tuning, and measurements of cost and of recall."""
