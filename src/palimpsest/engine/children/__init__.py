"""Sub-agents: agents that an agent starts, each in a session of its own."""
