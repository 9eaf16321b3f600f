"""The documents that are made from the code are what `./run docs` makes of it now."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pyte
import pytest
from made_docs import DOCS, pictures, tables
from svg_screen import freeze, svg

PICTURES = sorted((DOCS / "pictures").glob("*.svg"))
_SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(("path", "made"), [pytest.param(path, made, id=path.name) for path, made in tables()])
def test_the_tables_of_a_page_are_those_of_the_code(path: Path, made: str) -> None:
    assert path.read_text(encoding="utf-8") == made, "run ./run docs"


@pytest.mark.long
def test_the_pictures_are_those_of_a_run_now() -> None:
    assert {path: path.read_text(encoding="utf-8") for path in PICTURES} == dict(pictures()), "run ./run pictures"


def test_a_screen_is_text_in_its_colours_and_each_wide_letter_has_its_place() -> None:
    screen = pyte.HistoryScreen(12, 3)
    pyte.Stream(screen).feed("above\r\n\x1b[1;32mok\x1b[0m <你好>\x1b[38;5;208m!\x1b[0m\r\n\x1b[7mon\x1b[0m")
    lines = svg(freeze(screen, "ok", cursor=False), "t", "d").splitlines()
    assert [line for line in lines if line.startswith(("<text", '<rect class="default"'))] == [
        (
            '<text xml:space="preserve" y="27"><tspan x="14" class="green b">ok</tspan><tspan x="30.8"> &lt;</tspan>'
            '<tspan x="47.6">你</tspan><tspan x="64.4">好</tspan><tspan x="81.2">&gt;</tspan>'
            '<tspan x="89.6" fill="#ff8700">!</tspan></text>'
        ),
        '<rect class="default" x="14" y="32" width="16.8" height="18"/>',
        '<text xml:space="preserve" y="45"><tspan x="14" class="paper">on</tspan></text>',
    ]


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
