"""Stores of sessions, blobs and the search index, on disk and in memory."""
