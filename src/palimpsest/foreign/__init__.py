"""Other agents' sessions, read into logs of ours and written back."""
