"""Benchmarks: measures this machine against the bars, mostly as ratios within one run, and against other libraries."""
