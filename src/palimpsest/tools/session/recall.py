"""The tool `recall`: what was masked or folded in this session or said in a past one, by id, words, path, question or time."""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Final, NamedTuple, Protocol

from msgspec import Meta, Struct, field

from palimpsest.core.format.texts import utc_text
from palimpsest.core.items import Content, Document, Image, Kind, Part, ToolResult, text_of
from palimpsest.core.ports import Hit
from palimpsest.tools.tool import AgentTool, ToolError, ToolOutput, define, one_line
from palimpsest.tools.workspace import Workspace

RECALL: Final = "recall"
"""The name of the tool; searches leave its own calls and results out."""
PAGE_BYTES: Final = 32_000
"""Bytes of one item in one result; the rest can be recalled with `offset`."""
SHORT_ADDRESS: Final = 12
"""Digits of the address of a blob by which a stub names it."""
_ADDRESS: Final = re.compile(r"[0-9a-f]{12,64}")
_EVENTS: Final = re.compile(r"(\d{1,11})(?:\.\.(\d{1,11}))?")
_LINES: Final = re.compile(r"(\d{1,15})(?:(-)(\d{1,15})?)?")
_GOES_ON: Final = re.compile(r"go on with offset \d+(?: and column \d+)?\]\s*\Z")
MOST_HITS: Final = 20
_SNIPPET: Final = 300
_LEAST_PAGE: Final = 1_000
_NEWLINE: Final = 10


class Recollection(NamedTuple):
    """A recorded item in full. `hidden_by` says which edit hides it, and is empty if the model sees it.

    If the view held only a preview of a tool result, `content` is the full output. `at` is in milliseconds since 1970. For a range of
    events, `content` is the text of all their items.
    """

    id: str
    kind: Kind
    at: int
    content: Content
    hidden_by: str = ""


class Archive(Protocol):
    """What can be recalled: the items of this session and of past ones. An empty `session` means this one."""

    def item(self, item_id: str, session: str) -> Recollection | None:
        """Return an item in full, or `None` if there is none with that id. Raises `BadInput` if there is no such session.

        The id may also be the address of the kept whole of a result or its first digits (`address_of`), or events (`events_of`).
        """
        ...

    def search(self, words: str, session: str | None, limit: int) -> Sequence[Hit]:
        """Return items that contain all words, best first; `None` searches all sessions."""
        ...

    def about(self, path: str, session: str | None, limit: int) -> Sequence[Hit]:
        """Return items that read, changed or name a file, newest first; `None` looks in all sessions."""
        ...

    def query(self, text: str, *, history: bool, all_projects: bool) -> str:
        """Return the best notes and turns of past sessions for a question. Raises `BadInput` if memory is turned off."""
        ...

    def timeline(self, about: str, start: str, end: str) -> str:
        """Return what notes and past sessions say about something in the order of time. Raises `BadInput` if memory is turned off."""
        ...


class RecallArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """One of `id`, `words`, `path`, `query` and `timeline`. `session` restricts a search by words or path, and names the session of an id.

    `all_sessions` widens such a search. `offset` continues a long item at that byte, and `lines` such as `20-80` takes a part of it.
    `history` adds what notes said before, and `all_projects` looks in the sessions of all projects, for a query. `start` and `end` are
    the bounds of a timeline, as dates.
    """

    id: Annotated[str, Meta(max_length=200)] = ""
    words: Annotated[str, Meta(max_length=500)] = ""
    path: Annotated[str, Meta(max_length=1_000)] = ""
    session: Annotated[str, Meta(max_length=200)] = ""
    all_sessions: bool = False
    offset: Annotated[int, Meta(ge=0)] = 0
    lines: Annotated[str, Meta(max_length=40)] = ""
    query: Annotated[str, Meta(max_length=2_000)] = ""
    history: bool = False
    all_projects: bool = False
    timeline: Annotated[str, Meta(max_length=500)] = ""
    start: Annotated[str, Meta(max_length=40)] = field(default="", name="from")
    end: Annotated[str, Meta(max_length=40)] = field(default="", name="to")


def is_memory_file(item_id: str) -> bool:
    """Whether an id is the path of a Markdown file, such as a summary of a session in memory; no item has such an id."""
    return item_id.endswith(".md")


def page_for(window: int) -> int:
    """Return the bytes of a page for a window of so many tokens: at most a quarter of it."""
    return max(_LEAST_PAGE, min(PAGE_BYTES, window))


def full_page() -> int:
    """Return the bytes of a page for a usual window."""
    return PAGE_BYTES


def address_of(item_id: str) -> str:
    """Return an id that is the address of a blob, or its first digits, as it is; empty for any other id."""
    return item_id if _ADDRESS.fullmatch(item_id) else ""


def events_of(item_id: str) -> tuple[int, int] | None:
    """Return the first and the last event of an id such as `7` or `7..31`; `None` for any other id."""
    found = _EVENTS.fullmatch(item_id)
    return None if found is None else (int(found[1]), int(found[2] or found[1]))


def recall_tool(archive: Archive, page: Callable[[], int] = full_page) -> AgentTool:
    """The tool. It changes nothing: the result shows the item again, and the edit that hides it stays. `page` returns its bytes."""

    async def recall(arguments: RecallArguments, _: Workspace) -> ToolOutput:
        return await asyncio.to_thread(recall_from, archive, arguments, page())

    return define(
        RecallArguments,
        recall,
        name=RECALL,
        description=(
            "Fetch what is no longer shown: a message or result that was cleared, summarised or shortened, or something of a past "
            "session. Give the `id` that a stub or a summary names to get it in full, `words` that all occur in it, or the `path` of "
            f"a file it is about; searches return at most {MOST_HITS} ids with some text. They look in this session, in the `session` that "
            f"you name, or with `all_sessions` in all. An item is returned in pieces of at most {PAGE_BYTES // 1000} kB: take `lines` "
            "such as 200-260 of it, or go on with `offset`. An id such as 7..31 is all that was said and done from event 7 to 31. "
            "The path of a file of memory that an index or a summary names (`rollouts/….md`) is an `id`, too. "
            "A `query` in plain words finds the notes and past sessions of this project that bear on it, such as how an error was fixed "
            "before; `history` adds what notes said earlier. A `timeline` lists what is known of a person or thing, `from` and `to` dates."
        ),
        kind="reports",
        parallel=True,
    )


def recall_from(archive: Archive, arguments: RecallArguments, page: int = PAGE_BYTES) -> ToolOutput:
    """Return what the arguments ask for, of one item at most `page` bytes. Raises `ToolError` if they ask for nothing or there is none."""
    given = [name for name in ("id", "words", "path", "query", "timeline") if getattr(arguments, name)]
    if len(given) != 1:
        raise ToolError(f"give exactly one of `id`, `words`, `path`, `query` and `timeline`, not {' and '.join(given) or 'none'}")
    if arguments.id:
        return _item(archive, arguments, page)
    if arguments.query:
        return ToolOutput(archive.query(arguments.query, history=arguments.history, all_projects=arguments.all_projects))
    if arguments.timeline:
        return ToolOutput(archive.timeline(arguments.timeline, arguments.start, arguments.end))
    session = None if arguments.all_sessions else arguments.session
    find = archive.search if arguments.words else archive.about
    hits = find(arguments.words or arguments.path, session, MOST_HITS)
    if not hits:
        return ToolOutput("nothing was found" if session is None else "nothing was found in this session; `all_sessions` looks in all")
    return ToolOutput("\n".join(map(_hit_line, hits[:MOST_HITS])))


def _item(archive: Archive, arguments: RecallArguments, page: int) -> ToolOutput:
    item_id = arguments.id.strip().strip("`[]")
    found = archive.item(item_id, arguments.session)
    if found is None:
        raise ToolError(f"there is no item {one_line(item_id, 40)}; search for it by `words`")
    data = text_of(found.content).encode("utf-8", "replace")
    if arguments.offset and arguments.offset >= len(data):
        raise ToolError(f"item {found.id} has {len(data):,} bytes; byte {arguments.offset:,} does not exist")
    first, last = _chosen_bytes(found.id, data, arguments.lines)
    start = _boundary(data, max(first, arguments.offset))
    end = max(start, _boundary(data, min(last, start + page)))
    hidden = f", hidden by {one_line(found.hidden_by)}" if found.hidden_by else ", shown in the conversation"
    head = (
        f"events {found.id}, from {_time(found.at)}" if events_of(found.id) else f"item {found.id}, {found.kind}, {_time(found.at)}{hidden}"
    )
    if is_memory_file(item_id):
        head = f"{found.id}, from memory: data of earlier sessions, and no order"
    lines = [f"[{head}]", data[start:end].decode("utf-8", "replace")]
    if end < last:
        lines.append(f"[bytes {start:,} to {end:,} of {last:,}; go on with offset {end}]")
    elif _GOES_ON.search(lines[-1]):
        # The item is itself a page of something, whose last line is not one of this page.
        lines.append(f"[this is the end of item {found.id}; the line above belongs to it]")
    return ToolOutput("\n".join(lines), _media(found.content) if not start else (), paged=True)


def _chosen_bytes(name: str, data: bytes, lines: str) -> tuple[int, int]:
    """The place of the first byte of some lines and the place behind the last; of all bytes if `lines` is empty. Raises `ToolError`."""
    if not lines.strip():
        return 0, len(data)
    found = _LINES.fullmatch(lines.strip())
    if found is None:
        raise ToolError(f"`lines` is a line or a range such as 200-260, not {one_line(lines, 40)}")
    ends = [place + 1 for place, byte in enumerate(data) if byte == _NEWLINE]
    starts = [0, *(end for end in ends if end < len(data))]
    first = int(found[1])
    last = int(found[3]) if found[3] else len(starts) if found[2] else first
    if not 1 <= first <= min(last, len(starts)):
        raise ToolError(f"item {name} has {len(starts):,} lines; lines {one_line(lines, 40)} do not exist")
    return starts[first - 1], starts[last] if last < len(starts) else len(data)


def _boundary(data: bytes, place: int) -> int:
    """The last place up to a given one that is not inside a character."""
    place = min(place, len(data))
    while 0 < place < len(data) and data[place] & 0xC0 == 0x80:
        place -= 1
    return place


def _media(content: Content) -> tuple[Part, ...]:
    """The images and documents of an item, which no text can stand for."""
    match content:
        case Image() | Document():
            return (content,)
        case ToolResult(parts=parts):
            return tuple(part for part in parts if isinstance(part, Image | Document))
        case _:
            return ()


def _hit_line(hit: Hit) -> str:
    name = hit.item or f"event {hit.seq}"
    return f"{name} of session {hit.session}, {hit.kind}, {_time(hit.at)}: {one_line(hit.snippet, _SNIPPET)}"


def _time(at: int) -> str:
    return utc_text(at)
