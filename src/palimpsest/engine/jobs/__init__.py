"""Background jobs beside turns: what is due, one run, and the jobs that come with the engine."""
