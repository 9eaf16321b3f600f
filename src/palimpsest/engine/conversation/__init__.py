"""Conversations that another program owns: a log beside its message list, and the list that it should send."""
