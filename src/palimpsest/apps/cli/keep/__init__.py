"""Commands that look after the home folder."""
