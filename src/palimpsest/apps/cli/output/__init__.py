"""Output of commands: values and formats, and tables on a terminal."""
