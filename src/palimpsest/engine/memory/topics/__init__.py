"""Notes as plain files: a folder with an index and one topic a file, which the model reads and writes with its ordinary tools."""
