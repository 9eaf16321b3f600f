"""Policies: what edits the view, one file each."""
