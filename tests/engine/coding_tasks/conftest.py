"""A user without settings: what stands in the home folder of the machine must not change a task."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def empty_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty home folder, and git without settings of the user or the machine."""
    (tmp_path / "user").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
