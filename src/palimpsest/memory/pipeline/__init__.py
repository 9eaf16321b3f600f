"""The pipeline over finished sessions, without input and output: what is read, what is asked, and what may replace what."""
