"""Prices: the bill of a request, the cache state, the price of an edit, and rent."""
