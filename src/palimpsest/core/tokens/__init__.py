"""Tokens: estimates, counters, sizes, bounds and budgets."""
