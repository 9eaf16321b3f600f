"""Chat Completions: encoding of requests and decoding of replies."""
