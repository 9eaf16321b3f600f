"""The plugin for other agents: its hooks, its files, and its installation and removal."""
