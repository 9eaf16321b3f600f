"""Summaries of search hits: the sessions they are in, and the files that the calls among them access, each listed once."""

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from palimpsest.apps.cli.opening.home import AnyHome, find_session
from palimpsest.apps.cli.opening.logs import open_log
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.events import Event, ToolReturned
from palimpsest.core.events.event_items import all_items_of
from palimpsest.core.items import ToolCall
from palimpsest.core.log.log import Log
from palimpsest.core.ports import Hit, SessionRow


class FoundSession(Struct, frozen=True):
    """A session with hits: how many, and the time of the newest in milliseconds since 1970."""

    session: str
    title: str
    hits: int
    at: int


class FoundFile(Struct, frozen=True):
    """A file that matching calls read or changed: how many did, and session and time of the newest, in milliseconds since 1970."""

    path: str
    hits: int
    session: str
    at: int


def found_sessions(hits: Sequence[Hit], rows: Sequence[SessionRow]) -> list[FoundSession]:
    """Return the sessions of hits in the order of their first hit."""
    titles = {row.id: row.title for row in rows}
    counts = Counter(hit.session for hit in hits)
    first = {hit.session: hit for hit in reversed(hits)}
    return [FoundSession(session, titles.get(session, ""), counts[session], first[session].at) for session in counts]


def found_files(home: AnyHome, hits: Sequence[Hit]) -> list[FoundFile]:
    """Return the files of the calls and results among the hits, in the order of their first hit; unreadable logs are left out."""
    paths: dict[tuple[str, str], tuple[str, ...]] = {}
    for session in dict.fromkeys(hit.session for hit in hits):
        wanted = {hit.item for hit in hits if hit.session == session and hit.kind in ("call", "result")}
        try:
            with open_log(find_session(home, session)) as log:
                paths |= {(session, item): files for item, files in _accessed(log, wanted).items()}
        except PalimpsestError:
            continue
    files: dict[str, list[Hit]] = {}
    for hit in hits:
        for path in paths.get((hit.session, hit.item), ()):
            files.setdefault(path, []).append(hit)
    return [FoundFile(path, len(found), found[0].session, found[0].at) for path, found in files.items()]


def _accessed(log: Log, wanted: set[str]) -> dict[str, tuple[str, ...]]:
    """Return the files that calls access, by the ids of call and result items."""
    calls: dict[str, ToolCall] = {}
    found: dict[str, tuple[str, ...]] = {}
    for event in log.reader.run(0, log.tip) if wanted else ():
        calls |= {item.content.call_id: item.content for item in all_items_of(event) if isinstance(item.content, ToolCall)}
        for item in all_items_of(event):
            if item.id in wanted:
                found[item.id] = _paths(event, item.content, calls)
    return found


def _paths(event: Event, content: object, calls: dict[str, ToolCall]) -> tuple[str, ...]:
    from palimpsest.audit.tools.calls import Action, action_of, action_with  # most searches list no files

    action = Action("other")
    if isinstance(content, ToolCall):
        action = action_of(content)
    elif isinstance(event.body, ToolReturned) and (call := calls.get(event.body.result.call_id)) is not None:
        action = action_with(call, event.body)
    returned = event.body.paths if isinstance(event.body, ToolReturned) else ()
    return tuple(dict.fromkeys((*(access.path for access in action.paths), *returned)))
