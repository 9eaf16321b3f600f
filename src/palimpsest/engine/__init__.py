"""The only loop: sessions, the moments at which policies look, and calls."""
