"""Named ways of working: policies with their numbers."""
