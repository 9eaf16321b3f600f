"""Settings of the user: their schema, the files that hold them, and which of several layers wins."""
