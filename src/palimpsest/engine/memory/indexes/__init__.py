"""Indexes over the notes and the past sessions of a project."""
