"""The tool `recall`: what was masked or folded in this session or said in a past one, by id, words, path, question or time."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple, Protocol

from msgspec import Meta, Struct, field

from palimpsest.core.format.texts import utc_text
from palimpsest.core.items import Content, Document, Image, Kind, Part, ToolResult, text_of
from palimpsest.core.ports import Hit
from palimpsest.tools.tool import AgentTool, ToolError, ToolOutput, define, one_line
from palimpsest.tools.workspace import Workspace

RECALL: Final = "recall"
"""The name of the tool; searches leave its own calls and results out."""
PAGE_BYTES: Final = 100_000
"""Bytes of one item in one result; the rest can be recalled with `offset`."""
MOST_HITS: Final = 20
_SNIPPET: Final = 300


class Recollection(NamedTuple):
    """A recorded item in full. `hidden_by` says which edit hides it, and is empty if the model sees it.

    If the view held only a preview of a tool result, `content` is the full output. `at` is in milliseconds since 1970.
    """

    id: str
    kind: Kind
    at: int
    content: Content
    hidden_by: str = ""


class Archive(Protocol):
    """What can be recalled: the items of this session and of past ones. An empty `session` means this one."""

    def item(self, item_id: str, session: str) -> Recollection | None:
        """Return an item in full, or `None` if there is none with that id. Raises `BadInput` if there is no such session."""
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

    `all_sessions` widens such a search. `offset` continues a long item at that byte. `history` adds what notes said before, and
    `all_projects` looks in the sessions of all projects, for a query. `start` and `end` are the bounds of a timeline, as dates.
    """

    id: Annotated[str, Meta(max_length=200)] = ""
    words: Annotated[str, Meta(max_length=500)] = ""
    path: Annotated[str, Meta(max_length=1_000)] = ""
    session: Annotated[str, Meta(max_length=200)] = ""
    all_sessions: bool = False
    offset: Annotated[int, Meta(ge=0)] = 0
    query: Annotated[str, Meta(max_length=2_000)] = ""
    history: bool = False
    all_projects: bool = False
    timeline: Annotated[str, Meta(max_length=500)] = ""
    start: Annotated[str, Meta(max_length=40)] = field(default="", name="from")
    end: Annotated[str, Meta(max_length=40)] = field(default="", name="to")


def recall_tool(archive: Archive) -> AgentTool:
    """The tool. It changes nothing: the result shows the item again, and the edit that hides it stays."""

    async def recall(arguments: RecallArguments, _: Workspace) -> ToolOutput:
        return await asyncio.to_thread(recall_from, archive, arguments)

    return define(
        RecallArguments,
        recall,
        name=RECALL,
        description=(
            "Fetch what is no longer shown: a message or result that was cleared, summarised or shortened, or something of a past "
            "session. Give the `id` that a stub or a summary names to get the item in full, `words` that all occur in it, or the `path` of "
            f"a file it is about; searches return at most {MOST_HITS} ids with some text. They look in this session, in the `session` that "
            f"you name, or with `all_sessions` in all. An item is returned in pieces of {PAGE_BYTES // 1000} kB; go on with `offset`. "
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
    end = _boundary(data, arguments.offset + page)
    start = _boundary(data, arguments.offset)
    hidden = f", hidden by {one_line(found.hidden_by)}" if found.hidden_by else ", shown in the conversation"
    lines = [f"[item {found.id}, {found.kind}, {_time(found.at)}{hidden}]", data[start:end].decode("utf-8", "replace")]
    if end < len(data):
        lines.append(f"[bytes {start:,} to {end:,} of {len(data):,}; go on with offset {end}]")
    return ToolOutput("\n".join(lines), _media(found.content) if not start else ())


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
