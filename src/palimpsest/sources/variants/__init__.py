"""The source sets of the profiles: which sources each one states, and in which order."""
