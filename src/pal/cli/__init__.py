"""The command line of `pal`, with one module for each group of commands."""
