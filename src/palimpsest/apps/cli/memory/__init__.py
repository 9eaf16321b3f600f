"""The commands of `pal memory`: notes that outlive a session."""
