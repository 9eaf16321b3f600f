"""The client of MCP servers, by the official SDK, which only sessions with servers import."""
