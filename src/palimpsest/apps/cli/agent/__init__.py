"""Commands that run the agent."""
