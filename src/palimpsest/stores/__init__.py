"""Stores of sessions, blobs, the search index, configuration and snapshots, on disk and in memory."""
