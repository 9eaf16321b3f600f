"""Bars of `pal` as a process of its own: in a terminal, and as a gateway."""
