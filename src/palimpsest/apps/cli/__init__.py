"""The `pal` command."""
