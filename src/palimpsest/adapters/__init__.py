"""Thin layers over conversations for the clients and frameworks of others; each needs its package and imports it when it is used."""
