"""Commands that check and maintain the home folder."""
