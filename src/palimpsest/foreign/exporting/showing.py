"""Texts of a log as a page may show them: no control character gets through, long ones are cut, sizes are told in words."""

import json
import re
from datetime import UTC, datetime
from html import escape

from palimpsest.core.items import Thinking, ToolCall, text_of
from palimpsest.foreign.exporting.story import Answered, Cover, Edited, Said, Turn, Used

_OPENING = re.compile(r"(`{3,}(?=[^`]*$)|~{3,})")

# Control characters are shown as their pictures; marks that turn the direction of text around are shown as unreadable.
_HARMLESS = {ord("\n"), ord("\t")}
_CONTROLS: dict[int, int] = {code: 0x2400 + code for code in range(0x20) if code not in _HARMLESS}
_CONTROLS |= {0x7F: 0x2421} | dict.fromkeys((*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD)
_CONTROLS |= dict.fromkeys((*range(0xD800, 0xE000), 0xFEFF, 0xFFFE, 0xFFFF, 0x2028, 0x2029), 0xFFFD)


def visible(text: str) -> str:
    """A text as it may stand on a page: line ends are newlines, and nothing in it commands whoever shows it."""
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS)


def headline(text: str, width: int = 80) -> str:
    """The beginning of a text on one line."""
    line = " ".join(visible(text[: width * 8]).split())
    return line if len(line) <= width else f"{line[: width - 1].rstrip()}…"


def cut(text: str, limit: int | None) -> str:
    """A text of about `limit` characters: two thirds from its beginning, one from its end, and between them how many are missing."""
    if limit is None or len(text) <= limit:
        return text
    head, tail = text[: limit * 2 // 3], text[len(text) - limit // 3 :]
    return f"{head}\n… {len(text) - len(head) - len(tail):,} characters are left out here …\n{tail}"


def size_of(text: str) -> str:
    """How long a text is, for people."""
    lines = text.count("\n") + (not text.endswith("\n")) if text else 0
    size = len(text.encode("utf-8", "surrogatepass"))
    return f"{counted(lines, 'line')}, {bytes_of(size)}"


def bytes_of(size: int) -> str:
    """A number of bytes, for people."""
    if size < 10_000:
        return counted(size, "byte")
    return f"{size / 1000:,.0f} kB" if size < 10_000_000 else f"{size / 1_000_000:,.0f} MB"


def counted(number: int, word: str) -> str:
    """A number and what it counts."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def moment(at: int) -> str:
    """A moment in UTC, so that a page reads the same everywhere."""
    try:
        return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{at} ms"


def dollars(cost: float) -> str:
    """A price for people."""
    return f"${cost:,.2f}" if cost >= 0.01 or cost == 0 else f"${cost:.4f}"


def arguments_of(call: ToolCall) -> str:
    """The arguments of a call, each on a line of its own; text of several lines stands indented below its name."""
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
    """What a call is about, on one line: its first argument that is a text."""
    try:
        value = json.loads(call.args)
    except ValueError:
        return headline(call.args)
    texts = [each for each in value.values() if isinstance(each, str)] if isinstance(value, dict) else []
    return headline(texts[0] if texts else call.args if value else "")


def outcome_of(used: Used) -> str:
    """What came back from a call, on one line: how much, and whether it was an error."""
    returned = used.returned
    if returned is None:
        return "no result was recorded"
    text = text_of(returned.result)
    words = [size_of(text) if text else "nothing"]
    if returned.result.error:
        words.append("error")
    if returned.exit is not None:
        words.append(f"exit {returned.exit}")
    return ", ".join(words)


def fate_of(entry: Said | Answered | Used) -> str:
    """What became of something: a remark if the model does not see it any more."""
    return " · hidden now" if entry.hidden else ""


def edit_line(edit: Edited) -> str:
    """Who edited the view, why, and what it hid, in one line."""
    words = [f"by {headline(edit.by)}" + (f": {headline(edit.why, 200)}" if edit.why else "")]
    if edit.before or edit.after:
        words.append(f"{edit.before:,} → {edit.after:,} tokens")
    if edit.price is not None:
        words.append(dollars(edit.price))
    for items, verb in ((edit.hid, "hides"), (edit.brought, "brings back"), (edit.made, "adds")):
        if items:
            words.append(f"{verb} {counted(len(items), 'item')}")
    if edit.undone:
        words.append("undone later")
    return " · ".join(words)


def turn_line(turn: Turn) -> str:
    """What a turn took: calls, tokens, dollars; nothing when no model was called."""
    if not turn.calls:
        return ""
    usage = turn.usage
    words = [counted(turn.calls, "call")]
    if usage.total:
        cached = f" ({usage.cache_read:,} from the cache)" if usage.cache_read else ""
        words += [f"{usage.prompt:,} tokens read{cached}", f"{usage.output:,} written"]
        words.append("price unknown" if turn.cost is None else dollars(turn.cost))
    return " · ".join(words)


def who(entry: Said | Answered) -> str:
    """Whose words these are."""
    if isinstance(entry, Answered):
        return "Thinking" if isinstance(entry.part, Thinking) else "Assistant"
    names = {"user": "User", "steering": "User, while the turn ran", "context": "Context", "recalled": "Recalled"}
    name = names.get(entry.kind, entry.kind.capitalize())
    return f"{name} ({headline(entry.source, 60)})" if entry.source else name


def is_aside(entry: Said | Answered) -> bool:
    """Whether something is folded away: thoughts, and what is told to the model by nobody."""
    return isinstance(entry.part, Thinking) or (isinstance(entry, Said) and entry.kind == "context")


def aside_line(entry: Said | Answered) -> str:
    """What stands after the name of something that is folded away: where it is and how long."""
    text = text_of(entry.part)
    return f", event {entry.seq}: {size_of(text) if text else 'sealed'}{fate_of(entry)}"


def by_line(entry: Said | Answered) -> str:
    """What stands after the name of whoever speaks: where, when, and by which model."""
    model = f" · {headline(entry.model, 60)}" if isinstance(entry, Answered) and entry.model else ""
    return f" · event {entry.seq} · {moment(entry.at)}{model}{fate_of(entry)}"


def call_line(used: Used) -> str:
    """A call and what came of it on one line of markup, as HTML and Markdown both have it."""
    call, returned = used.call, used.returned
    name = call.tool if call is not None else (returned.tool if returned is not None else "")
    gist = escape(gist_of(call)) if call is not None else "the result of an earlier call"
    return f"<b>{escape(headline(name, 60) or 'tool')}</b> {gist}".rstrip() + f" → {outcome_of(used)}{fate_of(used)}"


def heading_of(cover: Cover, turn: Turn) -> str:
    """What a turn is called: how the user's message begins."""
    return headline(cover.messages[turn.number - 1]) if turn.number else "Before the first message"


def facts_of(cover: Cover, turns: int) -> tuple[tuple[str, str], ...]:
    """What is known of a session, for the top of a page."""
    facts = (
        ("session", cover.session),
        ("written by", cover.origin),
        ("folder", cover.cwd),
        ("model", cover.model),
        ("began", moment(cover.began)),
        ("length", f"{counted(turns, 'message')} of the user, {counted(cover.events, 'event')}"),
    )
    return tuple((name, headline(value, 300)) for name, value in facts if value)


def title_of(cover: Cover) -> str:
    """What a session is called: its title, else how it began, else its id."""
    return headline(cover.title or next(iter(cover.messages), "") or cover.session) or cover.session


def fenced(text: str) -> list[tuple[bool, str]]:
    """A text in pieces, each with whether it is a code block: fence, lines, fence; joined by newlines they are the text.

    Only a fence at the very beginning of a line opens one, for only that is one wherever it stands.
    """
    pieces: list[tuple[bool, list[str]]] = [(False, [])]
    closing: re.Pattern[str] | None = None
    for line in text.split("\n"):
        if closing is not None:
            pieces[-1][1].append(line)
            if closing.fullmatch(line):
                closing = None
                pieces.append((False, []))
        elif opening := _OPENING.match(line):
            mark = opening[1]
            closing = re.compile(rf" {{0,3}}{mark[0]}{{{len(mark)},}}[ \t]*")
            pieces.append((True, [line]))
        else:
            pieces[-1][1].append(line)
    return [(code, "\n".join(lines)) for code, lines in pieces if lines]
