"""Model calls: the one path by which a request leaves, one call of a turn, and the wants of plans."""
