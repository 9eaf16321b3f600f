"""Other libraries that do the same work in the same run, if they are installed."""
