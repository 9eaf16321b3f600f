"""A store in memory and an index of it, for the tests of the index."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from palimpsest.stores.in_memory import MemorySessions
from palimpsest.stores.index import SqliteIndex


@pytest.fixture
def store() -> MemorySessions:
    """A store that gives its lines out in small runs."""
    return MemorySessions(chunk_bytes=200)


@pytest.fixture
def index(store: MemorySessions, tmp_path: Path) -> Iterator[SqliteIndex]:
    """An index that has seen nothing yet."""
    with SqliteIndex(tmp_path / "index.sqlite", store) as index:
        yield index
