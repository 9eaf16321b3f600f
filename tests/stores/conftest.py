"""A shelf in memory and an index of it, for the tests of the index."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from palimpsest.stores.ephemeral import MemoryShelf
from palimpsest.stores.sqlite import Index


@pytest.fixture
def shelf() -> MemoryShelf:
    """A shelf that gives its lines out in small runs."""
    return MemoryShelf(run=200)


@pytest.fixture
def index(shelf: MemoryShelf, tmp_path: Path) -> Iterator[Index]:
    """An index that has seen nothing yet."""
    with Index(tmp_path / "index.sqlite", shelf) as index:
        yield index
