"""Notes on disk: Markdown files that a person can read and edit, with a log of every change."""
