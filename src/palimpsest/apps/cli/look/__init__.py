"""Commands that show something."""
