"""The coding agent: an agent with tools, permissions, a sandbox and context in a project folder."""
