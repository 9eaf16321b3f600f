import re
from pathlib import Path
from xml.etree import ElementTree as ET

from replay_samples import comparison

from pal_lab.picture import RequestBytes, picture

ROOT = Path(__file__).parents[3]
REQUESTS = (
    RequestBytes("before the fold", "aa" * 32, 9_000),
    RequestBytes("folded", "bb" * 32, 400),
    RequestBytes("after the undo", "aa" * 32, 9_000),
)
SVG = "{http://www.w3.org/2000/svg}"


def words(drawing: str) -> list[str]:
    return [text.text or "" for text in ET.fromstring(drawing).iter(f"{SVG}text")]  # noqa: S314 - made right here, so that no entity in it can be a trap


def test_the_picture_tells_costs_and_that_the_undo_gave_the_same_bytes() -> None:
    found = comparison()
    costs = {name: outcome.cost.total for name, outcome in found.runs[0].sessions[0].profiles.items()}

    reported = words(picture(found.runs[0], found.against, REQUESTS))

    assert [word for word in reported if word.startswith("$")] == [
        f"${usd:.2f}, {usd / costs['claude-code']:.2f}×" for usd in costs.values()
    ]
    assert reported.count(f"sha256 {'aa' * 12}…") == 2
    assert "the same bytes: an edit is an event, and so is its undo" in reported


def test_a_picture_of_an_undo_that_failed_says_so() -> None:
    found = comparison()

    reported = words(picture(found.runs[0], found.against, (*REQUESTS[:2], REQUESTS[1])))

    assert "not the same bytes" in reported


def test_the_picture_of_the_readme_was_drawn_by_the_demo_and_loads_nothing() -> None:
    drawn = (ROOT / "docs" / "picture.svg").read_text(encoding="utf-8")

    assert any(word.endswith("Made by: pal demo --picture OUT") for word in words(drawn))
    assert "the same bytes: an edit is an event, and so is its undo" in words(drawn)
    assert re.findall(r"https?://[^\"]+", drawn) == ["http://www.w3.org/2000/svg"]
    assert re.findall(r"(?i)<script|<image|href|url\(|@import", drawn) == []
