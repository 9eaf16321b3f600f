"""The page about the configuration has a row for every key of the schema, with its default and its description."""

import re
from pathlib import Path

import msgspec

from palimpsest.stores.config.schema import KEYS
from palimpsest.stores.config.template import project_keys

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")


def test_the_table_of_keys_is_that_of_the_schema() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| (?:`(.*?)`)? ?\| (.+) \|$", PAGE, re.MULTILINE)
    assert rows == [
        (key.name.replace("*", "NAME"), "" if key.example else msgspec.json.encode(key.default).decode(), key.description)
        for key in KEYS.values()
    ]


def test_the_keys_of_a_project_are_named() -> None:
    section = PAGE.partition("## What a project may set")[2].partition("## ")[0]
    assert re.findall(r"`([\w.]+)`", section) == list(project_keys())
