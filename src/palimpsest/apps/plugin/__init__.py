"""The plugin for other agents: its hooks, its files, and how both are put in place and taken away again."""
