"""Programs of the user that the terminal runs: shell lines, notifications, and the script of the status line."""
