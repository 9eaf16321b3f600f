"""HTML as readable text: headings, lists, links and preformatted text stay, scripts and styles go."""

import re
from html.parser import HTMLParser
from typing import Final
from urllib.parse import urljoin

_SKIPPED: Final = frozenset({"script", "style", "noscript", "template", "svg", "iframe", "object", "canvas", "select"})
# fmt: off
_BLOCKS: Final = frozenset({
    "address", "article", "aside", "blockquote", "body", "dd", "details", "div", "dl", "dt", "fieldset", "figcaption", "figure",
    "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p", "pre", "section", "summary",
    "table", "tbody", "tfoot", "thead", "title", "tr", "ul",
})
# fmt: on
_HEADINGS: Final = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_SPACE: Final = re.compile(r"[ \t\r\f\v\n\u00a0]+")
_LONGEST_LINK: Final = 500
# Resolving takes 40 µs, and a hostile page can have a link every ten bytes.
_MOST_LINKS: Final = 5_000


class PageText(HTMLParser):
    """Collects the text of a page; links are resolved against `url`."""

    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self._url = url
        self._out: list[str] = []
        self._title: list[str] = []
        self._skipping = 0
        self._preformatted = 0
        self._in_title = False
        # The address of the open link, and where its words begin; links do not nest.
        self._link: tuple[str, int] | None = None
        self._links = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an element."""
        if tag in _SKIPPED:
            self._skipping += 1
        if tag == "title" and not (self._title or self._skipping):
            self._in_title = True
        if self._skipping or self._in_title:
            return
        given = dict(attrs)
        if tag in _BLOCKS:
            self._break()
        if tag == "pre":
            self._preformatted += 1
        elif tag == "br":
            self._out.append("\n")
        elif tag in _HEADINGS:
            self._out.append(_HEADINGS[tag])
        elif tag == "li":
            self._out.append("- ")
        elif tag in ("td", "th"):
            self._out.append(" | ")
        elif tag == "img" and given.get("alt"):
            self._out.append(f"[image: {given['alt']}]")
        elif tag == "a":
            self._end_link()
            self._link = (self._address(given.get("href") or ""), len(self._out))

    def handle_endtag(self, tag: str) -> None:
        """End an element; one that was never begun is ignored."""
        if tag in _SKIPPED:
            self._skipping = max(0, self._skipping - 1)
        if tag == "title":
            self._in_title = False
        if self._skipping:
            return
        if tag == "pre":
            self._preformatted = max(0, self._preformatted - 1)
        if tag == "a":
            self._end_link()
        if tag in _BLOCKS:
            self._break()

    def handle_data(self, data: str) -> None:
        """Take in text."""
        if self._in_title:
            self._title.append(data)
        elif not self._skipping:
            self._out.append(data if self._preformatted else _SPACE.sub(" ", data))

    def _end_link(self) -> None:
        if self._link is None:
            return
        (address, start), self._link = self._link, None
        words = "".join(self._out[start:]).strip()
        if address and words:
            self._out[start:] = [f"[{words}]({address})"]

    def _break(self) -> None:
        self._out.append("\n\n" if not self._preformatted else "\n")

    def _address(self, href: str) -> str:
        """An absolute address without its fragment; empty for one that leads to no page."""
        self._links += 1
        if self._links > _MOST_LINKS:
            return ""
        try:
            absolute = urljoin(self._url, href.strip()).partition("#")[0]
        except ValueError:
            return ""
        same = absolute == self._url.partition("#")[0]
        return absolute if absolute.startswith(("http://", "https://")) and len(absolute) <= _LONGEST_LINK and not same else ""

    @property
    def title(self) -> str:
        """The title of the page."""
        return " ".join("".join(self._title).split())

    @property
    def text(self) -> str:
        """The text of the page, with at most one empty line between paragraphs."""
        lines = [line.rstrip() for line in "".join(self._out).split("\n")]
        lines = [line[1:] if line.startswith(" ") and not line.startswith("  ") else line for line in lines]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n").strip()


def page_text(html: str, url: str) -> tuple[str, str]:
    """Title and text of a page; of malformed HTML, as far as it can be read."""
    page = PageText(url)
    # The parser asserts that marked sections are well-formed. It is not closed, because closing takes quadratic time on unclosed markup.
    try:
        # The line break ends a character reference, which the parser would keep back otherwise.
        page.feed(f"{html}\n")
    except AssertionError:
        page.handle_data("\n[the rest of the page is malformed]")
    return page.title, page.text
