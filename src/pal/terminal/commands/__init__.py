"""The commands of the terminal, which begin with a slash."""
