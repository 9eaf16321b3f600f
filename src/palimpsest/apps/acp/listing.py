"""The sessions that an editor can load, by page, newest first."""

from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from acp.schema import ListSessionsResponse, SessionInfo

from palimpsest.apps.acp.texts import valid
from palimpsest.core.errors import BadInput, Locked
from palimpsest.core.times import iso_time
from palimpsest.stores.home import AnyHome
from palimpsest.tools.tool import one_line

PAGE: Final = 100
_LONGEST_TITLE: Final = 200


def list_page(home: AnyHome, cwd: str | None = None, cursor: str | None = None) -> ListSessionsResponse:
    """Return at most `PAGE` sessions of a folder, or of all folders; none of sub-agents, and none without a folder.

    `cursor` is the `next_cursor` of the page before. Raises `BadInput` if it is none, `StoreError` if the index cannot be used.
    """
    if cursor is not None and not (cursor.isascii() and cursor.isdecimal()):
        raise BadInput("this is no cursor of `session/list`", where="cursor")
    first = int(cursor or 0)
    with closing(home.index()) as index:
        # While another process writes the index, what it has so far is listed.
        with suppress(Locked):
            index.refresh()
        rows = [row for row in index.list(refresh=False) if row.opener is None and Path(row.cwd).is_absolute()]
    if cwd is not None:
        rows = [row for row in rows if row.cwd in (cwd, str(Path(cwd).resolve()))]
    found = [
        SessionInfo(
            session_id=row.id,
            cwd=valid(row.cwd),
            title=valid(one_line(row.title, _LONGEST_TITLE)) or None,
            updated_at=iso_time(row.updated),
        )
        for row in rows[first : first + PAGE]
    ]
    return ListSessionsResponse(sessions=found, next_cursor=str(first + PAGE) if len(rows) > first + PAGE else None)
