"""What the user types: the input line, its keys, its history and its completion."""
