"""The tools of the coding agent for files, web pages, tasks and skills, and the sandbox of its shell commands."""
