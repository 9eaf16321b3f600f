"""A strict double of the providers of late 2026, which refuses, drops and bills as their documents say."""
