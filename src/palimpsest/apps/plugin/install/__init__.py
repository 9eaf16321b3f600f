"""Puts the plugin into the files of other agents, and takes it out again without a trace."""
