"""The tools that run shell commands, and the sandbox that contains them."""
