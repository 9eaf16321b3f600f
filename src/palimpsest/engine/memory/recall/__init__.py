"""Recall at work: indexes over notes and past sessions, what the context states of notes, and what was forgotten."""
