"""Settings of all tests: a law is checked by examples, never by the clock."""

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("palimpsest", deadline=None, print_blob=True)
settings.load_profile("palimpsest")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the collector of garbage away from modules and test functions, which are never garbage: walking them took seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
