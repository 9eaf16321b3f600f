"""File undo: snapshots around the turns that change files, and the way back."""
