"""Chat Completions: requests and replies."""
