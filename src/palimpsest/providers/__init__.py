"""Providers: models over HTTP, local, recorded and scripted."""
