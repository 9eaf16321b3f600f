"""The rules of the providers for requests, checked offline; they share no code with the encoders."""
