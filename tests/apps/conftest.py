"""A home for each test, and `pal` in it."""

from pathlib import Path

import pytest
from pal_runs import Pal


@pytest.fixture
def pal(tmp_path: Path) -> Pal:
    return Pal(tmp_path / "home")
