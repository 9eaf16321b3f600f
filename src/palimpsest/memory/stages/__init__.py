"""Two-stage memory of finished sessions, without input and output: a memory and a summary of each, and a handbook over all of them."""
