"""The MCP server: recall, sessions and notes for other agents, by the official SDK."""
