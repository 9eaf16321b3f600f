"""Commands that change the view."""
