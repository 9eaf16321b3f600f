"""Commands of memory."""
