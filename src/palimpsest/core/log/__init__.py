"""The log: appending, recovering, undoing and verifying."""
