"""Thin layers over conversations for other clients and frameworks, each of which imports its package when it is used."""
