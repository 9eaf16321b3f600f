"""What the user permits in a project: rules for tool calls, and commands of project files that are trusted."""
