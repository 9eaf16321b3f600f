"""Follows a message list that another program owns: its messages as events, and a view as its messages."""
