"""The program `pal`: commands, a terminal agent, editors, a gateway, an MCP server, a plugin, and replays."""
