"""Values and projections: what is in a log, and what follows from it."""
