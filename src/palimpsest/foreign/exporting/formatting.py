"""Formats texts and numbers of a log for a page: control characters are made visible, long texts are cut."""

import json
import re
from html import escape

from palimpsest.core.format.texts import counted, dollars, price_facts, utc_text
from palimpsest.core.items import Thinking, ToolCall, text_of
from palimpsest.foreign.exporting.entries import EditEntry, InputEntry, ReplyEntry, SessionHeader, ToolEntry, Turn

_FENCE = re.compile(r"(`{3,}(?=[^`]*$)|~{3,})")

# Control characters are shown as Unicode control pictures; characters that reorder text are shown as unreadable.
_ALLOWED = {ord("\n"), ord("\t")}
_CONTROLS: dict[int, int] = {code: 0x2400 + code for code in range(0x20) if code not in _ALLOWED}
_CONTROLS |= {0x7F: 0x2421} | dict.fromkeys((*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD)
_CONTROLS |= dict.fromkeys((*range(0xD800, 0xE000), 0xFEFF, 0xFFFE, 0xFFFF, 0x061C, 0x200E, 0x200F, 0x2028, 0x2029), 0xFFFD)


def visible(text: str) -> str:
    """The text without control characters, and with newlines as line ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS)


def headline(text: str, width: int = 80) -> str:
    """The start of a text on one line."""
    line = " ".join(visible(text[: width * 8]).split())
    return line if len(line) <= width else f"{line[: width - 1].rstrip()}…"


def cut(text: str, limit: int | None) -> str:
    """A text of about `limit` characters: two thirds from its start, one third from its end, and the number of missing ones in between."""
    if limit is None or len(text) <= limit:
        return text
    head, tail = text[: limit * 2 // 3], text[len(text) - limit // 3 :]
    return f"{head}\n… {len(text) - len(head) - len(tail):,} characters are left out here …\n{tail}"


def size_of(text: str) -> str:
    """The number of lines and bytes of a text, for people."""
    lines = text.count("\n") + (not text.endswith("\n")) if text else 0
    size = len(text.encode("utf-8", "surrogatepass"))
    return f"{counted(lines, 'line')}, {bytes_of(size)}"


def bytes_of(size: int) -> str:
    """A number of bytes, for people."""
    if size < 10_000:
        return counted(size, "byte")
    return f"{size / 1000:,.0f} kB" if size < 10_000_000 else f"{size / 1_000_000:,.0f} MB"


def utc_time(at: int) -> str:
    """A time in milliseconds as UTC text."""
    return utc_text(at, "%Y-%m-%d %H:%M:%S UTC")


def arguments_of(call: ToolCall) -> str:
    """The arguments of a call, one on each line; text of several lines is indented below its name."""
    if call.form == "free":
        return call.args
    try:
        value = json.loads(call.args)
    except ValueError:
        return call.args
    if not isinstance(value, dict):
        return call.args
    return "\n".join(_argument(name, each) for name, each in value.items())


def _argument(name: str, value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{name}: {text}" if "\n" not in text else f"{name}:\n" + "\n".join(f"    {line}" for line in text.split("\n"))


def gist_of(call: ToolCall) -> str:
    """The first text argument of a call, on one line."""
    try:
        value = json.loads(call.args)
    except ValueError:
        return headline(call.args)
    texts = [each for each in value.values() if isinstance(each, str)] if isinstance(value, dict) else []
    return headline(texts[0] if texts else call.args if value else "")


def outcome_of(entry: ToolEntry) -> str:
    """The result of a call on one line: its size, and whether it is an error."""
    returned = entry.returned
    if returned is None:
        return "no result was recorded"
    text = text_of(returned.result)
    details = [size_of(text) if text else "nothing"]
    if returned.result.error:
        details.append("error")
    if returned.exit is not None:
        details.append(f"exit {returned.exit}")
    return ", ".join(details)


def hidden_remark(entry: InputEntry | ReplyEntry | ToolEntry) -> str:
    """A remark if the model does not see an entry any more; empty otherwise."""
    return " · hidden now" if entry.hidden else ""


def edit_line(edit: EditEntry) -> str:
    """An edit on one line: by whom, why, tokens, price, and numbers of items."""
    details = [f"by {headline(edit.by)}" + (f": {headline(edit.why, 200)}" if edit.why else "")]
    if edit.tokens_before and edit.tokens_after:
        details.append(f"{edit.tokens_before:,} → {edit.tokens_after:,} tokens")
    details += price_facts(edit.price, None)
    for items, verb in ((edit.hidden_items, "hides"), (edit.restored, "brings back"), (edit.inserted, "adds")):
        if items:
            details.append(f"{verb} {counted(len(items), 'item')}")
    if edit.undone:
        details.append("undone later")
    return " · ".join(details)


def turn_line(turn: Turn) -> str:
    """The calls, tokens and dollars of a turn; empty if no model was called."""
    if not turn.calls:
        return ""
    usage = turn.usage
    details = [counted(turn.calls, "call")]
    if usage.total:
        cached = f" ({usage.cache_read:,} from the cache)" if usage.cache_read else ""
        details += [f"{usage.prompt:,} tokens read{cached}", f"{usage.output:,} written"]
        details.append("price unknown" if turn.cost is None else dollars(turn.cost))
    return " · ".join(details)


def speaker_of(entry: InputEntry | ReplyEntry) -> str:
    """The name of the speaker of an entry."""
    if isinstance(entry, ReplyEntry):
        return "Thinking" if isinstance(entry.part, Thinking) else "Assistant"
    names = {"user": "User", "steering": "User, while the turn ran", "context": "Context", "recalled": "Recalled"}
    name = names.get(entry.kind, entry.kind.capitalize())
    return f"{name} ({headline(entry.source, 60)})" if entry.source else name


def is_collapsed(entry: InputEntry | ReplyEntry) -> bool:
    """Whether an entry is collapsed on the page: reasoning and context."""
    return isinstance(entry.part, Thinking) or (isinstance(entry, InputEntry) and entry.kind == "context")


def collapsed_line(entry: InputEntry | ReplyEntry) -> str:
    """The text after the name of a collapsed entry: its event and its size."""
    text = text_of(entry.part)
    return f", event {entry.seq}: {size_of(text) if text else 'sealed'}{hidden_remark(entry)}"


def by_line(entry: InputEntry | ReplyEntry) -> str:
    """The text after the name of a speaker: event, time and model."""
    model = f" · {headline(entry.model, 60)}" if isinstance(entry, ReplyEntry) and entry.model else ""
    return f" · event {entry.seq} · {utc_time(entry.at)}{model}{hidden_remark(entry)}"


def call_line(entry: ToolEntry) -> str:
    """A call and its result on one line of markup that is valid in HTML and Markdown."""
    call, returned = entry.call, entry.returned
    name = call.tool if call is not None else (returned.tool if returned is not None else "")
    gist = escape(gist_of(call)) if call is not None else "the result of an earlier call"
    return f"<b>{escape(headline(name, 60) or 'tool')}</b> {gist}".rstrip() + f" → {outcome_of(entry)}{hidden_remark(entry)}"


def heading_of(header: SessionHeader, turn: Turn) -> str:
    """The heading of a turn: the start of the user's message."""
    return headline(header.messages[turn.number - 1]) if turn.number else "Before the first message"


def header_rows(header: SessionHeader, turns: int) -> tuple[tuple[str, str], ...]:
    """The rows of the header of a page: names and values."""
    rows = (
        ("session", header.session),
        ("written by", header.origin),
        ("folder", header.cwd),
        ("model", header.model),
        ("began", utc_time(header.began)),
        ("length", f"{counted(turns, 'message')} of the user, {counted(header.events, 'event')}"),
    )
    return tuple((name, headline(value, 300)) for name, value in rows if value)


def title_of(header: SessionHeader) -> str:
    """The title of a session, or else the start of its first message, or else its id."""
    return headline(header.title or next(iter(header.messages), "") or header.session) or header.session


def code_blocks(text: str) -> list[tuple[bool, str]]:
    """A text in pieces, each with whether it is a fenced code block; joined by newlines they are the text.

    Only a fence without indentation opens a block, because only that is one in every context.
    """
    pieces: list[tuple[bool, list[str]]] = [(False, [])]
    closing: re.Pattern[str] | None = None
    for line in text.split("\n"):
        if closing is not None:
            pieces[-1][1].append(line)
            if closing.fullmatch(line):
                closing = None
                pieces.append((False, []))
        elif opening := _FENCE.match(line):
            fence_chars = opening[1]
            closing = re.compile(rf" {{0,3}}{fence_chars[0]}{{{len(fence_chars)},}}[ \t]*")
            pieces.append((True, [line]))
        else:
            pieces[-1][1].append(line)
    return [(code, "\n".join(lines)) for code, lines in pieces if lines]
