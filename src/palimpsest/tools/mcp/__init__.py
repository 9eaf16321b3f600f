"""The client of MCP servers, by the official SDK; only this folder imports it, and only sessions with servers import this folder."""
