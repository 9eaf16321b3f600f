"""What an edit keeps, hides and costs."""
