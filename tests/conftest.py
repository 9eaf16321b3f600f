"""Settings of all tests: a law is checked by examples, never by the clock."""

from hypothesis import settings

settings.register_profile("palimpsest", deadline=None, print_blob=True)
settings.load_profile("palimpsest")
