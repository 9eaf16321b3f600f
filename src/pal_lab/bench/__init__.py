"""Benchmarks: measures this machine against limits, mostly as ratios within one run, and against other libraries."""
