"""Profiles: named bundles of policies with their numbers."""
