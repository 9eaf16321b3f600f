"""Exports a session as Markdown whose structure no content can break."""

import re
from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

from palimpsest.core.format.path import Path
from palimpsest.core.items import text_of
from palimpsest.core.log.log import Log
from palimpsest.foreign.exporting.entries import EditEntry, Entry, InputEntry, NoteEntry, ReplyEntry, ToolEntry, Turn
from palimpsest.foreign.exporting.formatting import (
    arguments_of,
    by_line,
    call_line,
    code_blocks,
    collapsed_line,
    cut,
    edit_line,
    header_rows,
    heading_of,
    headline,
    is_collapsed,
    speaker_of,
    title_of,
    turn_line,
    visible,
)
from palimpsest.foreign.exporting.turns import header_of, turns_of
from palimpsest.foreign.reading.cleaning import Clean, as_is
from palimpsest.wire.models.cards import CARDS, ModelCard

MARKDOWN_LIMIT: Final = 4_000
_MAX_LISTED = 100
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
            rest = f"\n- … and {len(items) - _MAX_LISTED:,} more" if len(items) > _MAX_LISTED else ""
            listed = "\n".join(f"- {item.id} {item.kind}: {escaped(item.line)}" for item in items[:_MAX_LISTED])
            blocks.append(_details(f"What edit {edit.seq} {verb}: {len(items):,}", listed + rest))
    return "\n\n".join(blocks)
