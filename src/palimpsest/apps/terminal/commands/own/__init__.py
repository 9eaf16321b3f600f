"""Commands of the user and of projects: Markdown files, found, read and filled with arguments."""
