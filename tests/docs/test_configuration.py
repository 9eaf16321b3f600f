"""The page about the configuration names the keys that a project may set."""

import re
from pathlib import Path

from palimpsest.stores.config import project_keys

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")


def test_the_keys_of_a_project_are_named() -> None:
    section = PAGE.partition("## What a project may set")[2].partition("## ")[0]
    assert re.findall(r"`([\w.]+)`", section) == list(project_keys())
