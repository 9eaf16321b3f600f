"""The engine: sessions, model calls, and the moments at which policies run."""
