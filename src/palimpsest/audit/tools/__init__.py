"""What tool calls and shell lines do: classes, file accesses, commands, tests."""
