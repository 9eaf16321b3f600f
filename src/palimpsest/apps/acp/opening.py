"""Lists and opens sessions for an editor: the settings of the folder, the agent, its tools, and who answers its questions."""

import os
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from acp.interfaces import Client
from acp.schema import ListSessionsResponse, SessionInfo
from msgspec import Struct, structs

from palimpsest.apps.acp.buffers import EditorBuffers
from palimpsest.apps.acp.client_servers import ClientServer, client_servers
from palimpsest.apps.acp.options import usable_models
from palimpsest.apps.acp.session import EditorSession
from palimpsest.apps.acp.texts import valid
from palimpsest.core.errors import BadInput, Locked
from palimpsest.core.log.log import Log
from palimpsest.engine.coding.configured import coding_settings, configured_agent, recorded_choice, session_hooks
from palimpsest.engine.coding.equip import equip
from palimpsest.engine.jobs.standard import standard_jobs
from palimpsest.stores.config.settings import FILE_NAME, resolve
from palimpsest.stores.home import AnyHome, new_id
from palimpsest.tools.tool import one_line

PAGE: Final = 100
_LONGEST_TITLE: Final = 200


class OpeningRequest(Struct, frozen=True):
    """What an editor wants: the folder, further folders, MCP servers of its user, and the session; empty for a new one."""

    cwd: str
    folders: tuple[str, ...] = ()
    servers: tuple[ClientServer, ...] = ()
    session: str = ""


def require_session(home: AnyHome, session: str) -> None:
    """Raise `BadInput` if there is no such session. The id comes from outside, so it is looked up instead of made into a path."""
    if all(stat.session != session for stat in home.store.stats()):
        raise BadInput(f"there is no session {session!r}; `pal sessions` lists them", where=home.store.name)


def fork_of(home: AnyHome, session: str) -> str:
    """Return the id of a new session that continues from the newest event of another one."""
    with Log.open(home.store, session, home.clock) as log, log.fork(home.store, new_id(home)) as forked:
        return forked.session


def open_session(
    home: AnyHome, request: OpeningRequest, client: Client, notify: Callable[[str], None], *, reads_buffers: bool = False
) -> EditorSession:
    """Return an open session, with its agent equipped by the settings of its folder.

    A session that exists starts in the narrower of its mode and that of the settings. `reads_buffers` says that the editor can be asked
    for the text of files, with unsaved changes. Raises `BadInput` for a folder that does not exist
    or settings that cannot be read, `Locked` if another process has the session.
    """
    root, folders = _folder(request.cwd), tuple(_folder(name) for name in request.folders)
    settings = resolve(None if home.folder is None else home.folder / FILE_NAME, root, os.environ)
    settings.require_valid()
    for problem in settings.refused:
        notify(str(problem))
    cards = home.cards()
    recorded = recorded_choice(home, request.session)
    servers = client_servers(request.servers, root)
    agent = configured_agent(
        home,
        settings,
        cards,
        session=request.session,
        recorded=recorded,
        cwd=root,
        jobs=standard_jobs(settings.config.jobs, home),
        notify=notify,
    )
    # The editor has its id, and may load it again before anything is said.
    agent.drops_blank = False
    try:
        models = usable_models(cards, settings, all_of_them=bool(os.environ.get("PAL_SCRIPT")))
        opened = EditorSession(agent, client, models)
        coding = coding_settings(settings, recorded, folders=folders)
        hooks = session_hooks(home, settings, root, coding.withheld)
        buffers = EditorBuffers(client, agent.id).hooks() if reads_buffers else ()
        coding = replace(coding, hooks=(*hooks.hooks, *buffers), mcp=structs.replace(coding.mcp, given=servers))
        for notice in (*equip(agent, home, coding, opened.approve), *hooks.notices):
            notify(notice)
    except BaseException:
        agent.drops_blank = not request.session
        agent.close()
        raise
    return opened


def _folder(name: str) -> Path:
    """The real path of a folder that an editor names. Raises `BadInput` if it is none, or relative."""
    path = Path(name)
    if not path.is_absolute() or not path.is_dir():
        raise BadInput("there is no such folder; an editor names folders by their absolute path", where=name)
    return path.resolve()


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
            updated_at=datetime.fromtimestamp(row.updated / 1_000, UTC).isoformat(),
        )
        for row in rows[first : first + PAGE]
    ]
    return ListSessionsResponse(sessions=found, next_cursor=str(first + PAGE) if len(rows) > first + PAGE else None)
