"""A page that was exported loads nothing and links no script, whatever the session says; judged by parsers of HTML and of Markdown."""

from html.parser import HTMLParser

from every_case import every_case
from markdown_it import MarkdownIt

from palimpsest.core.events import ModelReplied, SessionOpened, Titled, ToolReturned, UserSaid
from palimpsest.core.items import Image, Text, ToolCall, ToolResult
from palimpsest.core.log import Log
from palimpsest.exchange.html import write_html, write_markdown
from palimpsest.stores.in_memory import FixedClock, MemoryBlobs, MemorySessions

HOSTILE = (
    "![pixel](https://example.org/pixel.png)",
    "![pixel][one]\n\n[one]: https://example.org/pixel.png",
    "[click](javascript:alert(1))",
    "[click](  <javascript:alert(1)> 'x')",
    "[click](JaVaScRiPt&colon;alert(1))",
    "[click][two]\n\n[two]: javascript:alert(1)",
    "[click]\n\n[click]: data:text/html,<script>alert(1)</script>",
    "<javascript:alert(1)>",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<a href='javascript:alert(1)'>x</a>",
    "<iframe src='https://example.org'></iframe>",
    "<svg onload=alert(1)>",
    "`code` ![pixel](https://example.org/p.png) `",
    "a `b\n![pixel](https://example.org/p.png) c` d",
    "| a | ![p](https://e.org/p.png) |\n|---|---|\n| [x](javascript:a) | b |",
    "- [ ] task ![p](https://e.org/p.png)\n  1. [x](vbscript:a)",
    "\"><script src='https://example.org/x.js'></script>",
    "</details></blockquote><img src='https://example.org/p.png'>",
    "    ![in code](https://example.org/p.png)\n\n![after code](https://example.org/p.png)",
    "```\n![fenced](https://example.org/p.png)\n```\n![after a fence](https://example.org/p.png)",
)
LOADS = {"script", "img", "iframe", "object", "embed", "link", "audio", "video", "source", "svg", "form", "base", "style"}


def _log(text: str) -> Log:
    log = Log.create(MemorySessions(), SessionOpened("s", cwd=text, model=text), FixedClock(1))
    log.append(Titled(text))
    log.append(UserSaid((Text(text), Image("image/png", url="https://example.org/pixel.png"))))
    log.append(ModelReplied((Text(text, "assistant"), ToolCall("c", text, text)), model=text))
    log.append(ToolReturned(ToolResult("c", (Text(text),)), text))
    return log


class Tags(HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def dangerous(page: str, *, allowed: frozenset[str] = frozenset()) -> list[tuple[str, dict[str, str | None]]]:
    """The tags that load or run something, have a handler, or link to anything but a place in the page or a page of the web."""
    tags = Tags()
    tags.feed(page)
    return [
        (tag, attributes)
        for tag, attributes in tags.found
        if (tag in LOADS - allowed)
        or any(name.startswith("on") or name == "src" for name in attributes)
        or not (attributes.get("href") or "#").startswith(("#", "https://", "http://"))
    ]


@every_case("text", HOSTILE)
def test_markdown_shows_no_image_and_links_no_script(text: str) -> None:
    page = "".join(write_markdown(_log(text)))
    assert dangerous(MarkdownIt("commonmark", {"html": True}).enable("table").render(page)) == []
    assert "example.org" in page or "example.org" not in text


@every_case("text", HOSTILE)
def test_a_page_shows_no_image_and_links_no_script(text: str) -> None:
    page = "".join(write_html(_log(text), MemoryBlobs()))
    assert dangerous(page, allowed=frozenset({"style"})) == []


def test_the_judge_finds_what_it_looks_for() -> None:
    rendered = MarkdownIt("commonmark", {"html": True, "linkify": False}).render("![p](https://e.org/p.png)\n<b onclick=x>")
    assert [tag for tag, _ in dangerous(rendered)] == ["img", "b"]
