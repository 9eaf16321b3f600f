"""Probes: questions that measure what a session still knows after folds."""
