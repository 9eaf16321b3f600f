"""Exports a session as one HTML file without scripts that needs no network."""

from base64 import b64encode
from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.format.path import Path
from palimpsest.core.format.texts import counted
from palimpsest.core.items import Document, Image, Item, Opaque, Part, Text, Thinking, text_of
from palimpsest.core.log.log import Log
from palimpsest.core.ports import Blobs
from palimpsest.foreign.exporting.entries import (
    EditEntry,
    Entry,
    InputEntry,
    ItemLine,
    NoteEntry,
    ReplyEntry,
    SessionHeader,
    ToolEntry,
)
from palimpsest.foreign.exporting.formatting import (
    arguments_of,
    by_line,
    bytes_of,
    call_line,
    collapsed_line,
    cut,
    edit_line,
    header_rows,
    heading_of,
    headline,
    is_collapsed,
    size_of,
    speaker_of,
    title_of,
    turn_line,
    visible,
)
from palimpsest.foreign.exporting.rendering import STYLE as MARKDOWN_STYLE
from palimpsest.foreign.exporting.rendering import rendered
from palimpsest.foreign.exporting.turns import header_of, turns_of
from palimpsest.foreign.reading.cleaning import Clean, as_is
from palimpsest.wire.models.cards import CARDS, ModelCard

STYLE = """
:root{color-scheme:light dark;--page:#fbfaf7;--card:#fff;--ink:#22201c;--faint:#6d675d;--line:#e2ddd2;--user:#1f6f54;--edit:#9a6700;
--bad:#b3261e;--code:#f4f1ea;--link:#1d5fa8}
@media (prefers-color-scheme:dark){:root{--page:#171614;--card:#1f1e1b;--ink:#e8e4db;--faint:#a09a8d;--line:#38352f;--user:#6cc5a1;
--edit:#e0b050;--bad:#ff8a80;--code:#272521;--link:#8ab8ee}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:60rem;padding:1.5rem 1rem 4rem;background:var(--page);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI","Noto Sans","Noto Sans CJK SC","PingFang SC","Microsoft YaHei",sans-serif}
h1{font-size:1.5rem;line-height:1.25;margin:0 0 .75rem}
h2{font-size:1.1rem;line-height:1.35;margin:2.5rem 0 .75rem;padding-top:1rem;border-top:1px solid var(--line)}
h1,h2,p,.text,summary,li,dd{overflow-wrap:anywhere}
a{color:var(--link)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:0 0 1rem;font-size:.9rem}
dt{color:var(--faint)}dd{margin:0}
nav{margin:1rem 0;font-size:.95rem}
nav ol{margin:.5rem 0;padding-left:2.2rem}
nav li{margin:.2rem 0}
.by{margin:1rem 0 .25rem;font-size:.8rem;color:var(--faint)}
.by b{color:var(--ink);font-size:.9rem}
.text{white-space:pre-wrap;unicode-bidi:plaintext;tab-size:4}
.said,.answered{padding:.1rem 0 .1rem .9rem;border-left:3px solid var(--line)}
.user,.steering{border-left-color:var(--user)}
.code,.mono{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"Noto Sans Mono","Noto Sans Mono CJK SC",monospace}
.code,.mono,.cover{display:block;background:var(--code);border-radius:6px;padding:.6rem .8rem;margin:.4rem 0}
.text>.code{margin:0}
.said>.by,.answered>.by{margin-top:.1rem}
article{margin:.6rem 0}
.mono{max-height:32rem;overflow:auto}
details{margin:.4rem 0;background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.35rem .7rem;font-size:.9rem}
summary{cursor:pointer;color:var(--faint)}
summary b{color:var(--ink)}
.failed>summary b{color:var(--bad)}
.hidden{opacity:.7}
.said.hidden,.answered.hidden{border-left-style:dashed}
.edit{margin:.8rem 0;padding:.5rem .8rem;border:1px dashed var(--edit);border-radius:6px;font-size:.9rem}
.edit>p{margin:0 0 .3rem}
.edit>p b{color:var(--edit)}
.undone>p b{text-decoration:line-through;text-decoration-color:var(--faint)}
.note,.sum{margin:.6rem 0;font-size:.85rem;color:var(--faint)}
.sum{text-align:right;font-variant-numeric:tabular-nums}
ul{margin:.3rem 0;padding-left:1.2rem}
img{display:block;max-width:100%;height:auto;margin:.4rem 0;border:1px solid var(--line);border-radius:6px}
footer{margin-top:3rem;font-size:.8rem;color:var(--faint)}
@media (max-width:40rem){body{padding:1rem .75rem 3rem;font-size:15px}.said,.answered{padding-left:.6rem}dl{grid-template-columns:1fr;gap:0}
dd{margin-bottom:.3rem}.mono{max-height:none}}
@media print{:root{--page:#fff;--card:#fff;--ink:#000;--faint:#444;--line:#bbb;--code:#f5f5f5}body{max-width:none;padding:0;font-size:10pt}
.mono{max-height:none;overflow:visible}details::details-content{content-visibility:visible;block-size:auto}h2,.by,summary{break-after:avoid}}
"""


HTML_LIMIT: Final = 100_000
_LONG_TEXT = 2_000
_MAX_LISTED = 200
# Image types that a browser shows without running or loading anything.
_SAFE_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
# If markup ever slips through, the browser still loads and runs nothing.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"


def write_html(
    log: Log,
    blobs: Blobs,
    path: Path | None = None,
    *,
    cards: Iterable[ModelCard] = CARDS,
    clean: Clean = as_is,
    limit: int | None = HTML_LIMIT,
) -> Iterator[str]:
    """The page of a session along a path, in chunks. Results longer than `limit` characters are cut in the middle."""
    header = header_of(log, path, clean)
    yield _opening(header)
    page = _PageWriter(blobs, limit)
    for turn in turns_of(log, path, cards=cards, clean=clean):
        yield f'<section id="turn-{turn.number}">\n<h2 dir="auto">{turn.number}. {escape(heading_of(header, turn))}</h2>\n'
        for entry in turn.entries:
            yield page.entry(entry)
        line = turn_line(turn)
        yield f'<p class="sum">{escape(line)}</p>\n</section>\n' if line else "</section>\n"
    yield f"</main>\n<footer>{escape(header.session)}, {escape(counted(header.events, 'event'))}</footer>\n</body>\n</html>\n"


def _opening(header: SessionHeader) -> str:
    title = escape(title_of(header))
    rows = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in header_rows(header, len(header.messages)))
    messages = "".join(
        f'<li><a href="#turn-{number}" dir="auto">{escape(headline(text) or "(no words)")}</a></li>\n'
        for number, text in enumerate(header.messages, 1)
    )
    contents = f"<nav><details open><summary><b>Messages</b></summary>\n<ol>\n{messages}</ol>\n</details></nav>\n" if messages else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>{STYLE}{MARKDOWN_STYLE}</style>\n</head>\n<body>\n"
        f'<header><h1 dir="auto">{title}</h1>\n<dl>{rows}</dl></header>\n{contents}<main>\n'
    )


def text_block(text: str) -> str:
    """A text with its line breaks, in which Markdown is styled."""
    return f'<div class="text" dir="auto">{rendered(visible(text))}</div>\n'


def mono(text: str) -> str:
    """A text in a monospaced font."""
    return f'<div class="text mono">{escape(visible(text))}</div>\n'


def details(summary: str, inner: str, css_class: str = "") -> str:
    """A collapsed element, or a line if there is nothing inside; both arguments are markup."""
    if not inner:
        return f'<p class="{f"note {css_class}".rstrip()}">{summary}</p>\n'
    attribute = f' class="{css_class}"' if css_class else ""
    return f"<details{attribute}><summary>{summary}</summary>\n{inner}</details>\n"


class _PageWriter:
    """Encodes entries as markup."""

    def __init__(self, blobs: Blobs, limit: int | None) -> None:
        self._blobs = blobs
        self._limit = limit
        self._last_speaker: tuple[str, int, bool] | None = None

    def entry(self, entry: Entry) -> str:
        """One entry of a turn."""
        previous, self._last_speaker = self._last_speaker, None
        match entry:
            case InputEntry() | ReplyEntry():
                return self._message(entry, previous)
            case ToolEntry():
                return self._tool_element(entry)
            case EditEntry():
                return self._edit_element(entry)
            case NoteEntry():
                text = text_block(cut(entry.text, self._limit)) if entry.text else ""
                line = f"Event {entry.seq}: {escape(headline(entry.line, 200))}"
                return f'<div class="note" id="event-{entry.seq}">{line}{text}</div>\n'

    def _message(self, entry: InputEntry | ReplyEntry, previous: tuple[str, int, bool] | None) -> str:
        if isinstance(entry.part, Text) and not entry.part.text.strip():
            self._last_speaker = previous
            return ""
        name = speaker_of(entry)
        if is_collapsed(entry):
            text = text_of(entry.part)
            inner = mono(cut(text, self._limit)) if text else ""
            return details(f"<b>{escape(name)}</b>{collapsed_line(entry)}", inner, "hidden" if entry.hidden else "")
        self._last_speaker = (name, entry.seq, entry.hidden)
        by = f'<p class="by"><b>{escape(name)}</b>{escape(by_line(entry))}</p>\n'
        kind = entry.kind if isinstance(entry, InputEntry) else "assistant"
        css_class = ("answered" if isinstance(entry, ReplyEntry) else "said", kind, *(("hidden",) if entry.hidden else ()))
        opening = f'<article class="{" ".join(css_class)}">'
        return f"{opening}{'' if self._last_speaker == previous else by}{self._part(entry.part)}</article>\n"

    def _part(self, part: Part | Thinking) -> str:
        match part:
            case Text() | Opaque() | Thinking():
                return text_block(text_of(part) or "(nothing that can be read)")
            case Image():
                return self._image(part)
            case Document():
                return text_block(f"[document {part.name or part.media}{self._size(part.blob)}]")

    def _image(self, image: Image) -> str:
        if image.blob and image.media in _SAFE_IMAGES:
            try:
                data = b64encode(self._blobs.get(image.blob)).decode()
            except PalimpsestError:
                return text_block(f"[image {image.media}, which is not here]")
            return f'<img alt="an image of the session" src="data:{image.media};base64,{data}">\n'
        # A URL is shown as text and never loaded, so that opening a page does not contact a server.
        where = f" at {image.url}" if image.url and not image.url.startswith("data:") else ""
        return text_block(f"[image {image.media}{where}{self._size(image.blob)}]")

    def _size(self, address: str) -> str:
        try:
            return f", {bytes_of(len(self._blobs.get(address)))}" if address else ""
        except PalimpsestError:
            return ", which is not here"

    def _tool_element(self, entry: ToolEntry) -> str:
        call, returned = entry.call, entry.returned
        arguments = arguments_of(call) if call is not None else ""
        inner = mono(cut(arguments, self._limit)) if arguments.strip() else ""
        failed = returned is not None and (returned.result.error or bool(returned.exit))
        for part in returned.result.parts if returned is not None else ():
            text = text_of(part) if isinstance(part, Text | Opaque) else ""
            is_blank = isinstance(part, Text) and not text.strip()
            inner += "" if is_blank else mono(cut(text, self._limit)) if text else self._part(part)
        return details(call_line(entry), inner, " ".join(name for name, on in (("failed", failed), ("hidden", entry.hidden)) if on))

    def _edit_element(self, edit: EditEntry) -> str:
        undone = " undone" if edit.undone else ""
        blocks = [f'<div class="edit{undone}" id="event-{edit.seq}"><p><b>Edit {edit.seq}</b> {escape(edit_line(edit))}</p>\n']
        blocks += [self._inserted_item(item) for item in edit.inserted if text_of(item.content).strip()]
        blocks += [f'<div class="cover">{text_block(text)}</div>\n' for text in edit.mask_texts if text.strip()]
        for items, verb in ((edit.hidden_items, "hid"), (edit.restored, "brought back")):
            if items:
                blocks.append(details(f"What edit {edit.seq} {verb}: {len(items):,}", _list(items)))
        return "".join((*blocks, "</div>\n"))

    def _inserted_item(self, item: Item) -> str:
        text = text_of(item.content)
        if len(text) <= _LONG_TEXT:
            return f'<div class="cover">{text_block(text)}</div>\n'
        return details(f"{item.kind} {item.id}: {size_of(text)}", text_block(cut(text, self._limit)))


def _list(items: tuple[ItemLine, ...]) -> str:
    rows = [f'<li dir="auto">{item.id} {item.kind}: {escape(item.line)}</li>\n' for item in items[:_MAX_LISTED]]
    if len(items) > _MAX_LISTED:
        rows.append(f"<li>… and {len(items) - _MAX_LISTED:,} more</li>\n")
    return f"<ul>{''.join(rows)}</ul>\n"
