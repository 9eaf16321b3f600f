"""Tokens: estimates, counters, size rules, truncation and budgets."""
