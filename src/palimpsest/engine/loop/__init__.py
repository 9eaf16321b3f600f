"""The loop: a turn with its tool calls, its limits, the context it states, and the feed that shows it."""
