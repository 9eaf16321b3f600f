"""The documents that are made from the code are what `./run docs` makes of it now."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from made_docs import DOCS, pictures, tables

PICTURES = sorted((DOCS / "pictures").glob("*.svg"))
_SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(("path", "made"), [pytest.param(path, made, id=path.name) for path, made in tables()])
def test_the_tables_of_a_page_are_those_of_the_code(path: Path, made: str) -> None:
    assert path.read_text(encoding="utf-8") == made, "run ./run docs"


@pytest.mark.long
def test_the_pictures_are_those_of_a_run_now() -> None:
    assert {path: path.read_text(encoding="utf-8") for path in PICTURES} == dict(pictures()), "run ./run pictures"


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_is_small_has_words_and_needs_nothing_else(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    root = ET.fromstring(text)  # noqa: S314 - our own file
    assert {element.tag.removeprefix(_SVG) for element in root.iter()} <= {"svg", "title", "desc", "style", "rect", "text", "tspan"}
    assert all((root.findtext(f"{_SVG}{name}") or "").strip() for name in ("title", "desc"))
    assert text.count("http") == 1
    assert len(text) < 10_000


def test_the_pictures_show_the_moments_of_a_session() -> None:
    shown = {path.stem: "".join(ET.fromstring(path.read_text(encoding="utf-8")).itertext()) for path in PICTURES}  # noqa: S314
    assert list(shown) == ["audit", "context", "edit", "fold", "session"]
    marks = {
        "audit": "u undoes",
        "context": "Free space",
        "edit": "edit needs your permission",
        "fold": "(Ctrl-T)",
        "session": "allow bash(pytest",
    }
    assert [name for name, mark in marks.items() if mark not in shown[name]] == []
