"""The MCP server: recall, sessions and notes for agents of other programs, by the official SDK."""
