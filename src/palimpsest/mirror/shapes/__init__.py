"""The shapes of message lists: Anthropic Messages, Responses input items, Chat Completions."""
