"""The tools that read, search and change files of the workspace."""
