"""Who edits the view, one file each."""
