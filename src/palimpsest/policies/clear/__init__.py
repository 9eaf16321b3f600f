"""Policies that mask tool results."""
