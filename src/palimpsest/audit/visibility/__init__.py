"""What the model can still read after an edit, and what is lost."""
