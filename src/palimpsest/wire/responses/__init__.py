"""OpenAI Responses: encoding of requests and decoding of replies."""
