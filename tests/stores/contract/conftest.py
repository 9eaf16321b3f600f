"""Every store, one after the other, for the tests of their contract."""

from pathlib import Path

import pytest
from store_kinds import KINDS, StoreKind

from palimpsest.core.ports import SessionStore


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> StoreKind:
    """A session store and a hand on its bytes."""
    return KINDS[request.param](tmp_path)


@pytest.fixture
def store(kind: StoreKind) -> SessionStore:
    """A session store."""
    return kind.store
