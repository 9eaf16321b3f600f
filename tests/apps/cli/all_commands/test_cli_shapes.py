import re
from pathlib import Path
from typing import Any

import pytest
from pal_runs import SMALL, Pal, edited

DOCUMENT = (Path(__file__).parents[4] / "docs" / "json.md").read_text(encoding="utf-8")
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
        ("import", "--dry-run", str(Path(__file__).parents[3] / "golden" / "foreign" / "aider")),
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


MEMORY_ROWS = re.findall(r"^\| `pal memory (\w+)[^`]*` \| an? (?:list|object) \| (.+) \|$", DOCUMENT, re.MULTILINE)


@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("show", "project_server"),
        ("add", "Another fact."),
        ("forget", "project_server", "--yes"),
        ("search", "server"),
        ("why", "project_server"),
        ("import",),
        ("export",),
        ("run", "--now", "--no-model"),
        ("status",),
    ],
    ids=lambda words: words[0],
)
def test_a_command_of_memory_prints_the_fields_that_the_document_names(pal: Pal, tmp_path: Path, words: tuple[str, ...]) -> None:
    where = ("--cwd", str(tmp_path))
    pal("memory", "add", "The server is alpha.", "--about", "server", *where)
    folder = tmp_path / "memory"
    folder.mkdir()
    (folder / "user_prefs.md").write_text("---\nname: prefs\ndescription: d e\ntype: user\n---\nPrefers tabs.\n")
    given = (words[0], str(folder)) if words[0] == "import" else words
    printed: Any = pal.json("memory", *given, *(() if words[0] in ("run", "status") else where))
    value = printed[0] if isinstance(printed, list) else printed
    named = re.findall(r"`(\w+)`", re.split(r"; | \(|, ", dict(MEMORY_ROWS)[words[0]])[0])
    assert named or words[0] in ("show", "export")
    assert [name for name in named if name not in value] == []
