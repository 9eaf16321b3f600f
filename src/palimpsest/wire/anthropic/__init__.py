"""Anthropic Messages: encoding of requests and decoding of replies."""
