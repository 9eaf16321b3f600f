"""The pipeline over finished sessions at work: which are due, one session, one scope, the whole run, and the run in the background."""
