"""Two-stage memory at work: rows and claims of both stages, the folder of the handbook, and the run at the start of a session."""
