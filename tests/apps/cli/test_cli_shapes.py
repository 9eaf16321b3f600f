import re
from pathlib import Path
from typing import Any

import pytest
from pal_runs import SMALL, Pal, edited

DOCUMENT = (Path(__file__).parents[3] / "docs" / "json.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `pal (\w+)[^`]*` \| an? (?:list|object) \| (.+) \|$", DOCUMENT, re.MULTILINE))


def documented(command: str) -> list[str]:
    always = re.split(r", | also | and ", ROWS[command])[0]
    return re.findall(r"`(\w+)`", always)


@pytest.mark.parametrize(
    "words",
    [
        ("agents", SMALL),
        ("sessions",),
        ("show", SMALL),
        ("context", SMALL),
        ("search", "timeout"),
        ("fork", SMALL),
        ("rewind", SMALL, "3"),
        ("audit", SMALL),
        ("pin", SMALL, "2.0"),
        ("undo", SMALL, "--yes"),
        ("delete", SMALL, "--yes"),
        ("verify", SMALL),
        ("import", "--dry-run", str(Path(__file__).parents[2] / "golden" / "foreign" / "aider")),
        ("export", SMALL, "--to", "markdown"),
        ("index",),
        ("init",),
        ("config",),
        ("doctor",),
    ],
    ids=lambda words: words[0],
)
def test_a_command_prints_the_fields_that_the_document_names(pal: Pal, words: tuple[str, ...]) -> None:
    edited(pal.home)
    pal("index")
    printed: Any = pal.json(*words)
    value = printed[0] if isinstance(printed, list) else printed
    assert [name for name in documented(words[0]) if name not in value] == []
