"""Background jobs that need nothing but the log and, at most, a model."""
