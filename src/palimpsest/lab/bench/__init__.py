"""Measures this machine against the bars: ratios within one run, and the same work done by peers."""
