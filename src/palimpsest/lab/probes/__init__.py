"""Questions that tell what a session still knows."""
