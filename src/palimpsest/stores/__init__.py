"""Where logs, blobs and the search index are kept."""
