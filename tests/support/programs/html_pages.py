"""Reads HTML strictly: what is open, what is odd, what is linked, and what is said."""

from collections import Counter
from html.parser import HTMLParser

_EMPTY = {"meta", "img"}


class Page(HTMLParser):
    """The elements of a page, strictly nested, with what they link to and say."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.odd: list[str] = []
        self.seen: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.names: list[str] = []
        self.looks: Counter[str] = Counter()
        self.tags: list[str] = []
        # Everything between tags, also what is only space; and the visible texts, each with its innermost tag.
        self.data = ""
        self.texts: list[tuple[str, str]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] += 1
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        found = {name: value or "" for name, value in attrs}
        self.links += [found[name] for name in ("href", "src", "xlink:href") if name in found]
        self.names += [found["id"]] if "id" in found else []
        self.looks.update(found.get("class", "").split())
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _EMPTY:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.odd.append(tag)

    def handle_data(self, data: str) -> None:
        self.data += data
        if self.open[-1:] != ["style"]:
            self.text += data
            self.texts += [(self.open[-1] if self.open else "", data)] if data.strip() else []

    def handle_comment(self, data: str) -> None:
        self.odd.append(data)

    def handle_pi(self, data: str) -> None:
        self.odd.append(data)

    def unknown_decl(self, data: str) -> None:
        self.odd.append(data)
