from functools import cache
from pathlib import Path

import pytest
from corpus import CORPUS, GOLDEN, WITHOUT, corpus
from html_pages import Page
from markdown_it import MarkdownIt

from palimpsest.core.events import ModelReplied, ToolReturned, UserSaid
from palimpsest.core.items import Text, ToolCall, text_of
from palimpsest.core.log import Log
from palimpsest.exchange.formats import FORMATS
from palimpsest.exchange.html import write_html, write_markdown
from palimpsest.exchange.importing import import_session
from palimpsest.exchange.pages import visible
from palimpsest.exchange.resume import write_request
from palimpsest.exchange.transcript import TranscriptSource
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions
from palimpsest.wire.models import WireName
from palimpsest.wire.wires import check_request

_WIRES: tuple[WireName, ...] = ("anthropic", "responses", "chat")
_BIGGEST = 1_500_000


@cache
def _sessions(folder: Path) -> list[tuple[str, Log, MemoryBlobs]]:
    """All sessions below a folder, of whichever program, imported; of those in the corpus only the smaller, for time is short."""
    found: list[tuple[str, Log, MemoryBlobs]] = []
    for path in sorted(path for path in folder.rglob("*") if path.suffix in {".jsonl", ".json", ".db", ".traj"}):
        if path.stat().st_size > _BIGGEST:
            continue
        for form in FORMATS:
            for source in form.sources(path):
                if isinstance(source, TranscriptSource):
                    store, blobs = MemorySessions(), MemoryBlobs()
                    done = import_session(form, source, store, blobs, FixedClock(1))
                    found.append((f"{path.name} {done.session}", Log.open(store, done.session, FixedClock(1)), blobs))
    return found


def _check(folder: Path) -> int:
    reader = MarkdownIt("commonmark").enable("table")
    count = 0
    for name, log, blobs in _sessions(folder):
        page = Page("".join(write_html(log, blobs, limit=None)))
        assert (page.open, page.odd) == ([], []), name
        said = "".join(write_markdown(log, limit=None))
        folds = said.count("\n<details><summary>")
        assert sum(token.content.startswith("<details>") for token in reader.parse(said) if token.level == 0) == folds, name
        for event in log.events():
            match event.body:
                case UserSaid() as body:
                    words = [part.text for part in body.parts if isinstance(part, Text)]
                case ModelReplied() as body:
                    words = [part.text for part in body.parts if isinstance(part, Text)]
                    count += sum(isinstance(part, ToolCall) for part in body.parts)
                case ToolReturned() as body:
                    words = [text_of(part) for part in body.result.parts if isinstance(part, Text)]
                case _:
                    continue
            assert all(visible(each) in page.text for each in words), f"{name}: event {event.seq}"
        for wire in _WIRES:
            assert check_request(wire, write_request(log, blobs.get, wire).body) == (), name
    return count


def test_pages_of_real_sessions_have_every_word_and_their_requests_pass_the_rules() -> None:
    assert len(_sessions(GOLDEN)) >= 15
    assert _check(GOLDEN) >= 60


@pytest.mark.skipif(not corpus("*"), reason=WITHOUT)
def test_pages_of_public_sessions_have_every_word_and_their_requests_pass_the_rules() -> None:
    assert _check(CORPUS) >= 500
