"""Commands that import and export sessions."""
