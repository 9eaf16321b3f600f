"""Policies that clear tool results."""
