"""Exports a session as one HTML file without scripts, or as Markdown whose structure no content can break."""

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

from palimpsest.core.errors import PalimpsestError
from palimpsest.core.items import Document, Image, Item, Opaque, Part, Text, Thinking, text_of
from palimpsest.core.lines import Path
from palimpsest.core.log import Log
from palimpsest.core.ports import Blobs
from palimpsest.core.text import counted
from palimpsest.exchange.pages import (
    EditEntry,
    Entry,
    InputEntry,
    ItemLine,
    NoteEntry,
    ReplyEntry,
    SessionHeader,
    ToolEntry,
    Turn,
    arguments_of,
    by_line,
    bytes_of,
    call_line,
    code_blocks,
    collapsed_line,
    cut,
    edit_line,
    header_of,
    header_rows,
    heading_of,
    headline,
    is_collapsed,
    size_of,
    speaker_of,
    title_of,
    turn_line,
    turns_of,
    visible,
)
from palimpsest.exchange.secrets import Clean, as_is
from palimpsest.wire.models import CARDS, ModelCard

PAGE_STYLE = """
.md-mark{display:none}
.md-head{font-weight:700;font-size:1.08em}
.md-bold{font-weight:700}
.md-code{font:.88em/1.4 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:var(--code);border-radius:4px;padding:.05em .3em}
.md-item::before{content:"•"}
.md-quote{color:var(--faint);border-left:3px solid var(--line);padding-left:.6em}
.md-table{display:block;overflow-x:auto;margin:.3rem 0;white-space:normal}
.md-row{display:table-row}
.md-cell{display:table-cell;border:1px solid var(--line);padding:.15rem .5rem}
.md-row.md-first{font-weight:700}
"""
_HEADING = re.compile(r"#{1,6}[ \t]+(?=\S)")
_ITEM = re.compile(r"([ \t]*)([-*+])(?=[ \t]+\S)")
_QUOTE = re.compile(r"> ?(?=.)")
_FENCE_CHARS = frozenset("`~")
_DELIMITER_CHARS = frozenset("| \t:-")
_BOLD = "**"


def rendered(text: str) -> str:
    """Return the markup of a text without control characters: headings, lists, quotes, tables, code and bold words are styled.

    Without its tags the markup is the text, character by character. Links and images stay text, so that a page loads nothing.
    """
    blocks = [_code_block(piece) if is_code else _prose(piece) for is_code, piece in code_blocks(text)]
    return "".join(_joined(blocks))


def _joined(blocks: list[tuple[bool, str]]) -> Iterator[str]:
    """Yield blocks, each with whether it is displayed as a block; the newline beside such a block would show as an empty line."""
    for number, (is_block, markup) in enumerate(blocks):
        if number:
            yield _mark("\n") if is_block or blocks[number - 1][0] else "\n"
        yield markup


def _mark(text: str) -> str:
    return f'<span class="md-mark">{escape(text)}</span>' if text else ""


def _styled(name: str, markup: str) -> str:
    return f'<span class="md-{name}">{markup}</span>'


def _code_block(piece: str) -> tuple[bool, str]:
    """Return a fenced block without its fences; one without content stays as it is, because its block would be empty."""
    opening, _, rest = piece.partition("\n")
    body, newline, last = rest.rpartition("\n")
    closing = last.strip()
    is_closed = bool(closing) and set(closing) <= _FENCE_CHARS and closing[0] == opening[0]
    inner, end = (body, newline + last) if is_closed else (rest, "")
    if not inner.strip():
        return False, escape(piece)
    return True, f'<span class="code">{_mark(f"{opening}{chr(10)}")}{escape(inner)}{_mark(end)}</span>'


def _prose(piece: str) -> tuple[bool, str]:
    lines = piece.split("\n")
    blocks: list[tuple[bool, str]] = []
    at = 0
    while at < len(lines):
        rows = _table_length(lines, at)
        if rows:
            blocks.append((True, _table(lines[at : at + rows])))
        else:
            blocks.append((False, _inline_markdown(lines[at])))
        at += rows or 1
    return False, "".join(_joined(blocks))


def _table_length(lines: list[str], at: int) -> int:
    """Return the number of lines of a table that begins here; 0 if none does."""
    if not lines[at].startswith("|") or at + 1 >= len(lines) or not _is_delimiter(lines[at + 1]):
        return 0
    end = at + 2
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    return end - at


def _is_delimiter(line: str) -> bool:
    return line.startswith("|") and "-" in line and set(line) <= _DELIMITER_CHARS


def _table(lines: list[str]) -> str:
    rows = [_table_row(line, is_first=not number) for number, line in enumerate(lines) if number != 1]
    return _styled("table", _mark(f"\n{lines[1]}\n").join([rows[0], _mark("\n").join(rows[1:])]))


def _table_row(line: str, *, is_first: bool) -> str:
    first, *cells = line.split("|")
    # What follows the last bar is no cell unless it has text.
    last = _mark(f"|{cells.pop()}") if len(cells) > 1 and not cells[-1].strip() else ""
    markup = "".join(f"{_mark('|')}{_styled('cell', _inline(cell))}" for cell in cells)
    return f'<span class="md-row{" md-first" if is_first else ""}">{escape(first)}{markup}{last}</span>'


def _inline_markdown(line: str) -> str:
    if heading := _HEADING.match(line):
        return _styled("head", f"{_mark(heading[0])}{_inline(line[heading.end() :])}")
    if item := _ITEM.match(line):
        return f"{item[1]}{_styled('item', _mark(item[2]))}{_inline(line[item.end() :])}"
    if quote := _QUOTE.match(line):
        return _styled("quote", f"{_mark(quote[0])}{_inline(line[quote.end() :])}")
    return _inline(line)


def _inline(text: str) -> str:
    """Return a line with its code and bold words styled; a mark without its partner is text."""
    pieces = text.split("`")
    # An even number of pieces has one mark too many, and the last one stays.
    spans = pieces if len(pieces) % 2 else [*pieces[:-2], f"{pieces[-2]}`{pieces[-1]}"]
    markup = "".join(_code_span(span) if place % 2 else escape(span) for place, span in enumerate(spans))
    return _bold(markup)


def _code_span(span: str) -> str:
    if not span.strip():
        return f"`{escape(span)}`"
    # A mark of bold text inside code is no mark.
    return f'{_mark("`")}<span class="md-code">{escape(span).replace("*", "&#42;")}</span>{_mark("`")}'


def _bold(markup: str) -> str:
    """Return the markup with what stands between two marks of bold text styled; both must touch what they enclose."""
    pieces = markup.split(_BOLD)
    found: list[str] = [pieces[0]]
    at = 1
    while at < len(pieces):
        inner = pieces[at]
        if at + 1 < len(pieces) and inner and not inner[0].isspace() and not inner[-1].isspace():
            found.append(f"{_mark(_BOLD)}{_styled('bold', inner)}{_mark(_BOLD)}{pieces[at + 1]}")
            at += 2
        else:
            found.append(f"{_BOLD}{inner}")
            at += 1
    return "".join(found)


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
        f"<title>{title}</title>\n<style>{STYLE}{PAGE_STYLE}</style>\n</head>\n<body>\n"
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
                return self._html_message(entry, previous)
            case ToolEntry():
                return self._tool_element(entry)
            case EditEntry():
                return self._edit_element(entry)
            case NoteEntry():
                text = text_block(cut(entry.text, self._limit)) if entry.text else ""
                line = f"Event {entry.seq}: {escape(headline(entry.line, 200))}"
                return f'<div class="note" id="event-{entry.seq}">{line}{text}</div>\n'

    def _html_message(self, entry: InputEntry | ReplyEntry, previous: tuple[str, int, bool] | None) -> str:
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
        return f"{opening}{'' if self._last_speaker == previous else by}{self._html_part(entry.part)}</article>\n"

    def _html_part(self, part: Part | Thinking) -> str:
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
            inner += "" if is_blank else mono(cut(text, self._limit)) if text else self._html_part(part)
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


MARKDOWN_LIMIT: Final = 4_000
_MARKDOWN_MAX_LISTED = 100
_LONG_PARAGRAPH = 20_000
# An underscore between letters has no meaning in Markdown, and names are full of them.
_SPECIAL = re.compile(r"([\\`*\[\]<>#~&]|_(?![A-Za-z0-9])|(?<![A-Za-z0-9])_)")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
# What follows the text of a link or an image, or the name of a link definition. With it escaped, no page is linked and none is loaded.
_LINK = re.compile(r"\]([(:])")
_BACKTICKS = re.compile(r"`+")
_SPAN = re.compile(r"(?<!`)(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)")
_SPAN_OR_TAG = re.compile(rf"{_SPAN.pattern}|{_TAG.pattern}")
_MAY_USE_BACKTICK = re.compile(r"\]\(|\]:|\||\\`|\$")
_PARAGRAPH_END = re.compile(r"(\n[ \t]*(?=\n))")


def write_markdown(
    log: Log, path: Path | None = None, *, cards: Iterable[ModelCard] = CARDS, clean: Clean = as_is, limit: int | None = MARKDOWN_LIMIT
) -> Iterator[str]:
    """The transcript of a session along a path, in chunks. Results longer than `limit` characters are cut in the middle."""
    header = header_of(log, path, clean)
    yield f"# {escaped(title_of(header))}\n\n"
    yield "".join(f"- {name}: {escaped(value)}\n" for name, value in header_rows(header, len(header.messages)))
    for turn in turns_of(log, path, cards=cards, clean=clean):
        yield f"\n## {turn.number}\\. {escaped(heading_of(header, turn)) or '(no words)'}\n"
        yield from (f"\n{block}\n" for block in _turn(turn, limit))


def escaped(text: str) -> str:
    """A line of text with all Markdown characters escaped."""
    return _SPECIAL.sub(r"\\\1", text)


def quoted(text: str) -> str:
    """A text as a block quote: its structure ends with the quote, and its tags, links and images are escaped."""
    pieces = [piece if code else "".join(map(_escape_tags, _PARAGRAPH_END.split(piece))) for code, piece in code_blocks(visible(text))]
    return "\n".join(f"> {line}".rstrip() for piece in pieces for line in piece.split("\n"))


def _escape_tags(paragraph: str) -> str:
    """The paragraph with escaped tags. Tags within code spans are left as they are, if the backticks surely pair up."""
    lines = paragraph.split("\n")
    # If links, tables or escapes may use a backtick, or one is unpaired, no code span is trusted.
    if (
        len(paragraph) > _LONG_PARAGRAPH
        or _MAY_USE_BACKTICK.search(paragraph)
        or any(_BACKTICKS.search(_SPAN.sub("", line)) for line in lines)
    ):
        return _LINK.sub(r"]\\\1", _TAG.sub("&lt;", paragraph))
    return "\n".join(_SPAN_OR_TAG.sub(lambda found: found[0] if found["ticks"] else "&lt;", line) for line in lines)


def fence(text: str) -> str:
    """A text as a code block that no backtick in it can end."""
    shown = visible(text).removesuffix("\n")
    ticks = "`" * max(3, 1 + max((len(run) for run in _BACKTICKS.findall(shown)), default=0))
    return f"{ticks}text\n{shown}\n{ticks}"


def _details(summary: str, *blocks: str) -> str:
    inner = "\n\n".join(block for block in blocks if block)
    return f"<details><summary>{summary}</summary>\n\n{inner}\n\n</details>"


def _turn(turn: Turn, limit: int | None) -> Iterator[str]:
    previous: tuple[str, int, bool] | None = None
    for entry in turn.entries:
        if isinstance(entry, InputEntry | ReplyEntry) and not is_collapsed(entry):
            # Parts of one message have one heading.
            name = (speaker_of(entry), entry.seq, entry.hidden)
            if name != previous:
                yield f"**{escaped(name[0])}**{escaped(by_line(entry))}"
            previous = name
            yield quoted(text_of(entry.part) or "(nothing that can be read)")
        else:
            previous = None
            yield _entry(entry, limit)
    line = turn_line(turn)
    if line:
        yield f"*Turn {turn.number}: {escaped(line)}*"


def _entry(entry: Entry, limit: int | None) -> str:
    match entry:
        case InputEntry() | ReplyEntry():
            text = text_of(entry.part)
            return _details(f"{escape(speaker_of(entry))}{collapsed_line(entry)}", fence(cut(text, limit)) if text else "")
        case ToolEntry():
            arguments = arguments_of(entry.call) if entry.call is not None else ""
            text = text_of(entry.returned.result) if entry.returned is not None else ""
            blocks = (fence(cut(arguments, limit)) if arguments.strip() else "", fence(cut(text, limit)) if text else "")
            return _details(call_line(entry), *blocks)
        case EditEntry():
            return _edit_block(entry, limit)
        case NoteEntry():
            line = f"**Event {entry.seq}**: {escaped(headline(entry.line, 200))}"
            return f"{line}\n\n{quoted(cut(entry.text, limit))}" if entry.text else line


def _edit_block(edit: EditEntry, limit: int | None) -> str:
    blocks = [f"**Edit {edit.seq}** {escaped(edit_line(edit))}"]
    blocks += [quoted(cut(text_of(item.content), limit)) for item in edit.inserted]
    blocks += [quoted(text) for text in edit.mask_texts]
    for items, verb in ((edit.hidden_items, "hid"), (edit.restored, "brought back")):
        if items:
            rest = f"\n- … and {len(items) - _MARKDOWN_MAX_LISTED:,} more" if len(items) > _MARKDOWN_MAX_LISTED else ""
            listed = "\n".join(f"- {item.id} {item.kind}: {escaped(item.line)}" for item in items[:_MARKDOWN_MAX_LISTED])
            blocks.append(_details(f"What edit {edit.seq} {verb}: {len(items):,}", listed + rest))
    return "\n\n".join(blocks)
