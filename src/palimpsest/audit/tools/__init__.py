"""What tool calls and shell lines do: classes, paths, commands, tests."""
