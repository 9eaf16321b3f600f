"""Context you can audit, undo and price."""
