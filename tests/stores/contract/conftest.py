"""Fixtures with every kind of store, for the contract tests."""

from pathlib import Path

import pytest
from store_kinds import BLOBS, KINDS, SLOTS, STORES, StoreKind

from palimpsest.core.ports import BlobStore, SessionArchive, StateSlot


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SessionArchive:
    """A session store."""
    return STORES[request.param](tmp_path)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> StoreKind:
    """A session store, and a hand on its bytes."""
    return KINDS[request.param](tmp_path)


@pytest.fixture(params=BLOBS)
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    """A blob store."""
    return BLOBS[request.param](tmp_path)


@pytest.fixture(params=SLOTS)
def slot(request: pytest.FixtureRequest, tmp_path: Path) -> StateSlot:
    """A state slot of each kind."""
    return SLOTS[request.param](tmp_path)
