"""The notes that a session may see: their index, and the search that shows some of them with a prompt."""
