"""What a model can still see after an edit, and what it cannot."""
