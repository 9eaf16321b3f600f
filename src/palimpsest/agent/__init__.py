"""The agent: sessions, turns, model calls, tools, hooks, jobs and sub-agents, with the only loop of the library."""
