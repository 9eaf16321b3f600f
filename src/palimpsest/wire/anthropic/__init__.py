"""Anthropic's Messages: requests and replies."""
