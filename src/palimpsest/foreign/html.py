"""A session as one HTML file that needs no network and no script, in which everything from the log is text and never markup."""

from base64 import b64encode
from collections.abc import Iterable, Iterator
from html import escape

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.items import Document, Image, Item, Opaque, Part, Text, Thinking, text_of
from palimpsest.core.log import Log
from palimpsest.core.path import Path
from palimpsest.core.ports import Blobs
from palimpsest.foreign.cleaning import Clean, as_is
from palimpsest.foreign.html_style import STYLE
from palimpsest.foreign.showing import (
    arguments_of,
    aside_line,
    by_line,
    bytes_of,
    call_line,
    cut,
    edit_line,
    facts_of,
    fenced,
    heading_of,
    headline,
    is_aside,
    size_of,
    title_of,
    turn_line,
    visible,
    who,
)
from palimpsest.foreign.story import Answered, Cover, Edited, Entry, Listed, Noted, Said, Turn, Used
from palimpsest.foreign.telling import cover_of, turns_of
from palimpsest.wire.cards import CARDS, ModelCard

LIMIT = 100_000
_LONG = 2_000
_LISTED = 200
# Pictures that a browser draws without running or fetching anything.
_DRAWN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
# Should a mistake ever let markup through, the browser still loads and runs nothing.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"


def write_html(
    log: Log,
    blobs: Blobs,
    path: Path | None = None,
    *,
    cards: Iterable[ModelCard] = CARDS,
    clean: Clean = as_is,
    limit: int | None = LIMIT,
) -> Iterator[str]:
    """The page of a session along a path, piece by piece; results longer than `limit` are cut in their middle."""
    cover = cover_of(log, path, clean)
    yield _opening(cover)
    page = _Page(blobs, limit)
    for turn in turns_of(log, path, cards=cards, clean=clean):
        yield f'<section id="turn-{turn.number}">\n<h2 dir="auto">{turn.number}. {escape(heading_of(cover, turn))}</h2>\n'
        for entry in turn.entries:
            yield page.entry(entry)
        yield f"{_sum(turn)}</section>\n"
    yield f"</main>\n<footer>{escape(cover.session)}, {cover.events:,} events</footer>\n</body>\n</html>\n"


def _opening(cover: Cover) -> str:
    title = escape(title_of(cover))
    facts = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in facts_of(cover, len(cover.messages)))
    messages = "".join(
        f'<li><a href="#turn-{number}" dir="auto">{escape(headline(text) or "(no words)")}</a></li>\n'
        for number, text in enumerate(cover.messages, 1)
    )
    contents = f"<nav><details open><summary><b>Messages</b></summary>\n<ol>\n{messages}</ol>\n</details></nav>\n" if messages else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-counter=1">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f'<header><h1 dir="auto">{title}</h1>\n<dl>{facts}</dl></header>\n{contents}<main>\n'
    )


def _sum(turn: Turn) -> str:
    line = turn_line(turn)
    return f'<p class="sum">{escape(line)}</p>\n' if line else ""


def text_block(text: str) -> str:
    """A text with its line breaks; blocks of code in it stand out."""
    pieces = [(code, escape(piece)) for code, piece in fenced(visible(text))]
    shown = "\n".join(f'<span class="code">{piece}</span>' if code else piece for code, piece in pieces)
    return f'<div class="text" dir="auto">{shown}</div>\n'


def mono(text: str) -> str:
    """A text in letters of one width."""
    return f'<div class="text mono">{escape(visible(text))}</div>\n'


def folded(summary: str, inner: str, look: str = "") -> str:
    """Something that shows when one asks for it; all is markup already."""
    marked = f' class="{look}"' if look else ""
    return f"<details{marked}><summary>{summary}</summary>\n{inner}</details>\n"


class _Page:
    """Entries as markup."""

    def __init__(self, blobs: Blobs, limit: int | None) -> None:
        self._blobs = blobs
        self._limit = limit
        self._before: tuple[str, int, bool] | None = None

    def entry(self, entry: Entry) -> str:
        """One entry of a turn."""
        before, self._before = self._before, None
        match entry:
            case Said() | Answered():
                return self._spoken(entry, before)
            case Used():
                return self._used(entry)
            case Edited():
                return self._edited(entry)
            case Noted():
                text = text_block(cut(entry.text, self._limit)) if entry.text else ""
                line = f"Event {entry.seq}: {escape(headline(entry.line, 200))}"
                return f'<div class="note" id="event-{entry.seq}">{line}{text}</div>\n'

    def _spoken(self, entry: Said | Answered, before: tuple[str, int, bool] | None) -> str:
        name = who(entry)
        if is_aside(entry):
            text = text_of(entry.part)
            inner = mono(cut(text, self._limit)) if text else ""
            return folded(f"<b>{escape(name)}</b>{aside_line(entry)}", inner, "hidden" if entry.hidden else "")
        self._before = (name, entry.seq, entry.hidden)
        by = f'<p class="by"><b>{escape(name)}</b>{escape(by_line(entry))}</p>\n'
        kind = entry.kind if isinstance(entry, Said) else "assistant"
        look = ("answered" if isinstance(entry, Answered) else "said", kind, *(("hidden",) if entry.hidden else ()))
        opening = f'<article class="{" ".join(look)}">'
        return f"{opening}{'' if self._before == before else by}{self._part(entry.part)}</article>\n"

    def _part(self, part: Part | Thinking) -> str:
        match part:
            case Text() | Opaque() | Thinking():
                text = text_of(part) or "(nothing that can be read)"
                return text_block(text)
            case Image():
                return self._image(part)
            case Document():
                return text_block(f"[document {part.name or part.media}{self._size(part.blob)}]")

    def _image(self, image: Image) -> str:
        if image.blob and image.media in _DRAWN:
            try:
                data = b64encode(self._blobs.get(image.blob)).decode()
            except PalimpsestError:
                return text_block(f"[image {image.media}, which is not here]")
            return f'<img alt="an image of the session" src="data:{image.media};base64,{data}">\n'
        # An address is shown and never followed: a page that is opened must not call home.
        where = f" at {image.url}" if image.url and not image.url.startswith("data:") else ""
        return text_block(f"[image {image.media}{where}{self._size(image.blob)}]")

    def _size(self, address: str) -> str:
        try:
            return f", {bytes_of(len(self._blobs.get(address)))}" if address else ""
        except PalimpsestError:
            return ", which is not here"

    def _used(self, used: Used) -> str:
        call, returned = used.call, used.returned
        arguments = arguments_of(call) if call is not None else ""
        inner = mono(cut(arguments, self._limit)) if arguments.strip() else ""
        failed = returned is not None and (returned.result.error or bool(returned.exit))
        for part in returned.result.parts if returned is not None else ():
            text = text_of(part) if isinstance(part, Text | Opaque) else ""
            inner += mono(cut(text, self._limit)) if text else self._part(part)
        return folded(call_line(used), inner, " ".join(name for name, on in (("failed", failed), ("hidden", used.hidden)) if on))

    def _edited(self, edit: Edited) -> str:
        undone = " undone" if edit.undone else ""
        blocks = [f'<div class="edit{undone}" id="event-{edit.seq}"><p><b>Edit {edit.seq}</b> {escape(edit_line(edit))}</p>\n']
        blocks += [self._made(item) for item in edit.made]
        blocks += [f'<div class="cover">{text_block(text)}</div>\n' for text in edit.covers]
        for items, verb in ((edit.hid, "hid"), (edit.brought, "brought back")):
            if items:
                blocks.append(folded(f"What edit {edit.seq} {verb}: {len(items):,}", _list(items)))
        return "".join((*blocks, "</div>\n"))

    def _made(self, item: Item) -> str:
        text = text_of(item.content)
        if len(text) <= _LONG:
            return f'<div class="cover">{text_block(text)}</div>\n'
        return folded(f"{item.kind} {item.id}: {size_of(text)}", text_block(cut(text, self._limit)))


def _list(items: tuple[Listed, ...]) -> str:
    rows = [f'<li dir="auto">{item.id} {item.kind}: {escape(item.line)}</li>\n' for item in items[:_LISTED]]
    if len(items) > _LISTED:
        rows.append(f"<li>… and {len(items) - _LISTED:,} more</li>\n")
    return f"<ul>{''.join(rows)}</ul>\n"
