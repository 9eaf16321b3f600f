import re
from base64 import b64encode
from pathlib import Path

import pytest
from hostile import hostile_log, texts
from html_pages import Page
from hypothesis import given, settings
from pal_runs import SMALL, edited

from palimpsest.core.events import ModelReplied, SessionOpened, ToolReturned, UserSaid
from palimpsest.core.items import Document, Image, Text, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.core.redaction import redact
from palimpsest.exchange.html import mono, text_block, write_html
from palimpsest.exchange.pages import visible
from palimpsest.stores.home import FolderHome
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions


@pytest.fixture
def page_text(tmp_path: Path) -> str:
    edited(FolderHome(tmp_path))
    with Log.open(FolderHome(tmp_path).store, SMALL, FixedClock(1, 1)) as log:
        return "".join(write_html(log, FolderHome(tmp_path).blobs, limit=12))


def test_a_small_session_has_these_words_in_this_order(page_text: str) -> None:
    page = Page(page_text)
    assert (page.odd, page.open) == ([], [])
    assert [f"{tag}: {text.strip()}" for tag, text in page.texts[14:]] == _WORDS


_WORDS = [
    "b: Messages",
    "a: What is in a.py?",
    "a: 超时改成 30 秒",
    "h2: 0. Before the first message",
    "b: Context (base)",
    "summary: , event 1: 1 line, 9 bytes",
    "div: Be brief.",
    "h2: 1. What is in a.py?",
    "b: User",
    "p: · event 2 · 2031-04-01 09:00:02 UTC",
    "div: What is in a.py?",
    "b: Assistant",
    "p: · event 4 · 2031-04-01 09:00:04 UTC · claude-sonnet-4-5 · hidden now",
    "div: I look.",
    "b: read",
    "summary: a.py → 40 lines, 520 bytes · hidden now",
    "div: path: a.py",
    "div: timeout \n… 508 characters are left out here …\n 10",
    "b: Assistant",
    "p: · event 8 · 2031-04-01 09:00:08 UTC · claude-sonnet-4-5 · hidden now",
    "div: A timeout of ten seconds.",
    "p: 2 calls · 800 tokens read · 30 written · $0.0028",
    "h2: 2. 超时改成 30 秒",
    "b: User",
    "p: · event 10 · 2031-04-01 09:00:10 UTC",
    "div: 超时改成 30 秒",
    "b: Assistant",
    "p: · event 12 · 2031-04-01 09:00:12 UTC · claude-sonnet-4-5",
    "div: 好的。",
    "b: Edit 14",
    "p: by tester: it was long · 900 → 40 tokens · hides 4 items · adds 1 item",
    "div: a.py was read.",
    "summary: What edit 14 hid: 4",
    "li: 4.0 assistant: I look.",
    'li: 4.1 call: read {"path":"a.py"}',
    "li: 6.0 result: timeout = 10 timeout = 10 timeout = 10 timeout = 10 timeout = 10 timeout = 10 t…",
    "li: 8.0 assistant: A timeout of ten seconds.",
    "b: Edit 15",
    "p: by tester: shorter still · hides 1 item",
    "div: (hidden)",
    "summary: What edit 15 hid: 1",
    "li: 14.0.0 summary: a.py was read.",
    "p: 1 call",
    "footer: 20310401-090000-aaaa, 16 events",
]


def test_the_page_needs_no_network_and_no_script(page_text: str) -> None:
    page = Page(page_text)
    assert not {"script", "link", "iframe", "object", "form"} & set(page.seen)
    assert all(address.startswith("#turn-") for address in page.links)
    assert not re.search(r"url\(|@import|https?:", page_text)
    wanted = ("default-src &#x27;none&#x27;", "prefers-color-scheme:dark", "@media print", "max-width:40rem")
    assert all(words in page_text for words in wanted)


def test_every_link_of_the_contents_leads_to_its_message(page_text: str) -> None:
    assert re.findall(r'href="#([^"]+)"', page_text) == ["turn-1", "turn-2"]
    assert re.findall(r'<section id="([^"]+)">', page_text) == ["turn-0", "turn-1", "turn-2"]


def test_pictures_are_drawn_from_the_store_and_nothing_is_fetched() -> None:
    blobs = MemoryBlobs()
    log = Log.create(MemorySessions(), SessionOpened("s"), FixedClock(1, 1))
    picture = b"\x89PNG picture"
    address = blobs.put(picture)
    drawn = Image("image/png", address)
    other = (Image("image/svg+xml", address), Image("image/png", "0" * 64), Image("image/png", url="https://example.org/a.png"))
    log.append(UserSaid((drawn, *other, Document("application/pdf", address, name="<a>.pdf"))))
    log.append(ModelReplied((ToolCall("c", "shot", "{}"),)))
    log.append(ToolReturned(ToolResult("c", (Text("done"), drawn))))
    page = Page("".join(write_html(log, blobs)))

    source = f"data:image/png;base64,{b64encode(picture).decode()}"
    assert [each for each in page.links if not each.startswith("#")] == [source, source]
    assert [text for tag, text in page.texts if text.startswith("[") and tag == "div"] == [
        "[image image/svg+xml, 12 bytes]",
        "[image image/png, which is not here]",
        "[image image/png at https://example.org/a.png]",
        "[document <a>.pdf, 12 bytes]",
    ]


def test_secrets_are_taken_out_before_anything_is_escaped() -> None:
    log = Log.create(MemorySessions(), SessionOpened("s"), FixedClock(1, 1))
    log.append(UserSaid((Text('password="a&b<c>d1234567"'),)))
    page = "".join(write_html(log, MemoryBlobs(), clean=redact))

    assert Page(page).text.count("[REDACTED:assignment]") == 5
    assert "a&amp;b" not in page


@given(texts)
@settings(max_examples=300)
def test_a_block_of_text_has_exactly_its_text(text: str) -> None:
    page = Page(text_block(text))
    assert (page.odd, page.open, set(page.seen) <= {"div", "span"}) == ([], [], True)
    assert page.data == f"{visible(text)}\n"
    assert Page(mono(text)).data == f"{visible(text)}\n"


@given(texts)
@settings(max_examples=150, deadline=None)
def test_no_text_becomes_markup(text: str) -> None:
    page = Page("".join(write_html(hostile_log(f"x{text}"), MemoryBlobs())))
    plain = Page("".join(write_html(hostile_log("x"), MemoryBlobs())))

    assert (page.odd, page.open) == ([], [])
    assert [tag for tag in page.tags if tag != "span"] == plain.tags
    assert page.attributes == plain.attributes
    assert page.links == plain.links
    assert not {"\x00", "\x1b", "\u202e"} & set(page.text)
