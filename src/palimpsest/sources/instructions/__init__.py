"""Instruction files of the user and the project: which are read, what they import, and how they are stated."""
