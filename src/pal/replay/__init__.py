"""Replays of recorded sessions under other profiles, with their bills, re-reads, probes and reports."""
