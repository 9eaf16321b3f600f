"""Replays of recorded sessions, synthetic sessions, probes, reports and benchmarks."""
