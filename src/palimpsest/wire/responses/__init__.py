"""OpenAI's Responses: requests and replies."""
