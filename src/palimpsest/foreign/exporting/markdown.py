"""A session as Markdown that people read, whose structure nothing in it can break."""

import re
from collections.abc import Iterable, Iterator
from html import escape

from palimpsest.core.format.path import Path
from palimpsest.core.items import Document, Image, Opaque, Part, Text, Thinking, text_of
from palimpsest.core.log.log import Log
from palimpsest.foreign.exporting.showing import (
    arguments_of,
    aside_line,
    by_line,
    call_line,
    cut,
    edit_line,
    facts_of,
    fenced,
    heading_of,
    headline,
    is_aside,
    title_of,
    turn_line,
    visible,
    who,
)
from palimpsest.foreign.exporting.story import Answered, Edited, Entry, Listed, Noted, Said, Turn, Used
from palimpsest.foreign.exporting.telling import cover_of, turns_of
from palimpsest.foreign.reading.cleaning import Clean, as_is
from palimpsest.wire.models.cards import CARDS, ModelCard

LIMIT = 4_000
_LISTED = 100
_LONG = 20_000
# An underscore between letters means nothing, and names are full of them.
_SPECIAL = re.compile(r"([\\`*\[\]<>#~&]|_(?![A-Za-z0-9])|(?<![A-Za-z0-9])_)")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_TICKS = re.compile(r"`+")
_SPAN = re.compile(r"(?<!`)(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)")
_SPAN_OR_TAG = re.compile(rf"{_SPAN.pattern}|{_TAG.pattern}")
_TAKES_TICKS = re.compile(r"\]\(|\]:|\||\\`|\$")
_PARAGRAPH_END = re.compile(r"(\n[ \t]*(?=\n))")


def write_markdown(
    log: Log, path: Path | None = None, *, cards: Iterable[ModelCard] = CARDS, clean: Clean = as_is, limit: int | None = LIMIT
) -> Iterator[str]:
    """The transcript of a session along a path, piece by piece; results longer than `limit` are cut in their middle."""
    cover = cover_of(log, path, clean)
    yield f"# {words(title_of(cover))}\n\n"
    yield "".join(f"- {name}: {words(value)}\n" for name, value in facts_of(cover, len(cover.messages)))
    for turn in turns_of(log, path, cards=cards, clean=clean):
        yield f"\n## {turn.number}\\. {words(heading_of(cover, turn)) or '(no words)'}\n"
        yield from (f"\n{block}\n" for block in _turn(turn, limit))


def words(text: str) -> str:
    """One line of text in which no letter means anything to Markdown."""
    return _SPECIAL.sub(r"\\\1", text)


def quoted(text: str) -> str:
    """A text as a block quote: whatever it opens ends with the quote, and its tags are shown instead of taken."""
    pieces = [piece if code else _shown_tags(piece) for code, piece in fenced(visible(text))]
    return "\n".join(f"> {line}".rstrip() for piece in pieces for line in piece.split("\n"))


def _shown_tags(text: str) -> str:
    """Tags written so that they show; within backticks they show anyway, and are left where it is sure that those pair up."""
    return "".join(_shown_in(each) for each in _PARAGRAPH_END.split(text))


def _shown_in(paragraph: str) -> str:
    lines = paragraph.split("\n")
    # Where links, tables or escapes may take a backtick for themselves, or one is left over on a line, none is trusted.
    if len(paragraph) > _LONG or _TAKES_TICKS.search(paragraph) or any(_TICKS.search(_SPAN.sub("", line)) for line in lines):
        return _TAG.sub("&lt;", paragraph)
    return "\n".join(_SPAN_OR_TAG.sub(lambda found: found[0] if found["ticks"] else "&lt;", line) for line in lines)


def fence(text: str) -> str:
    """A text as a code block that no backtick in it can end."""
    shown = visible(text).removesuffix("\n")
    ticks = "`" * max(3, 1 + max((len(run) for run in _TICKS.findall(shown)), default=0))
    return f"{ticks}text\n{shown}\n{ticks}"


def _folded(summary: str, *blocks: str) -> str:
    inner = "\n\n".join(block for block in blocks if block)
    return f"<details><summary>{summary}</summary>\n\n{inner}\n\n</details>"


def _turn(turn: Turn, limit: int | None) -> Iterator[str]:
    before: tuple[str, int, bool] | None = None
    for entry in turn.entries:
        if isinstance(entry, Said | Answered) and not is_aside(entry):
            # What one message brought in several parts has its name above the first.
            name = (who(entry), entry.seq, entry.hidden)
            if name != before:
                yield f"**{words(name[0])}**{words(by_line(entry))}"
            before = name
            yield _part(entry.part)
        else:
            before = None
            yield _entry(entry, limit)
    line = turn_line(turn)
    if line:
        yield f"*Turn {turn.number}: {words(line)}*"


def _entry(entry: Entry, limit: int | None) -> str:
    match entry:
        case Said() | Answered():
            text = text_of(entry.part)
            return _folded(f"{escape(who(entry))}{aside_line(entry)}", fence(cut(text, limit)) if text else "")
        case Used():
            return _used(entry, limit)
        case Edited():
            return _edited(entry, limit)
        case Noted():
            line = f"**Event {entry.seq}**: {words(headline(entry.line, 200))}"
            return f"{line}\n\n{quoted(cut(entry.text, limit))}" if entry.text else line


def _part(part: Part | Thinking) -> str:
    match part:
        case Text() | Opaque() | Thinking():
            return quoted(text_of(part) or "(nothing that can be read)")
        case Image() | Document():
            return quoted(text_of(part))


def _used(used: Used, limit: int | None) -> str:
    call, returned = used.call, used.returned
    text = text_of(returned.result) if returned is not None else ""
    arguments = arguments_of(call) if call is not None else ""
    return _folded(call_line(used), fence(cut(arguments, limit)) if arguments.strip() else "", fence(cut(text, limit)) if text else "")


def _edited(edit: Edited, limit: int | None) -> str:
    blocks = [f"**Edit {edit.seq}** {words(edit_line(edit))}"]
    blocks += [quoted(cut(text_of(item.content), limit)) for item in edit.made]
    blocks += [quoted(text) for text in edit.covers]
    for items, verb in ((edit.hid, "hid"), (edit.brought, "brought back")):
        if items:
            rest = f"\n- … and {len(items) - _LISTED:,} more" if len(items) > _LISTED else ""
            listed = "\n".join(_listed(item) for item in items[:_LISTED])
            blocks.append(_folded(f"What edit {edit.seq} {verb}: {len(items):,}", listed + rest))
    return "\n\n".join(blocks)


def _listed(item: Listed) -> str:
    return f"- {item.id} {item.kind}: {words(item.line)}"
