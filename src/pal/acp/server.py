"""The agent side of the Agent Client Protocol for `pal acp`, with several sessions at once, and how they are opened."""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from acp import PROTOCOL_VERSION, RequestError
from acp.agent.connection import AgentSideConnection
from acp.interfaces import Agent as ProtocolAgent
from acp.interfaces import Client
from acp.schema import (
    AgentCapabilities,
    AuthenticateResponse,
    ClientCapabilities,
    CloseSessionResponse,
    ForkSessionResponse,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionAdditionalDirectoriesCapabilities,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionForkCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
)
from msgspec import Struct, structs

from pal.acp.session import (
    MODE,
    MODEL,
    ClientServer,
    EditorBuffers,
    EditorSession,
    PromptBlock,
    client_servers,
    mode_state,
    prompt_parts,
    usable_models,
)
from pal.acp.transport import LineTransport, standard_streams
from pal.acp.updates import valid
from palimpsest.agent.agent import run
from palimpsest.agent.decision import Approval
from palimpsest.agent.jobs import standard_jobs
from palimpsest.agent.tool import one_line
from palimpsest.coding.build import coding_agent, coding_settings, recorded_choice
from palimpsest.core.errors import BadInput, Locked, PalimpsestError
from palimpsest.core.events import PermissionAsked
from palimpsest.core.log import Log
from palimpsest.stores.config_files import FILE_NAME, resolve
from palimpsest.stores.home import Home

PAGE: Final = 100
_LONGEST_TITLE: Final = 200


class OpeningRequest(Struct, frozen=True):
    """What an editor wants: the folder, further folders, MCP servers of its user, and the session; empty for a new one."""

    cwd: str
    folders: Sequence[str] | None = None
    servers: Sequence[ClientServer] | None = None
    session: str = ""


def require_session(home: Home, session: str) -> None:
    """Raise `BadInput` if there is no such session. The id comes from outside, so it is looked up instead of made into a path."""
    if all(stat.session != session for stat in home.store.stats()):
        raise BadInput(f"there is no session {session!r}; `pal sessions` lists them", where=home.store.name)


def fork_of(home: Home, session: str) -> str:
    """Return the id of a new session that continues from the newest event of another one."""
    with Log.open(home.store, session, home.clock) as log, home.fork(log) as forked:
        return forked.session


def open_session(
    home: Home, request: OpeningRequest, client: Client, notify: Callable[[str], None], *, reads_buffers: bool = False
) -> EditorSession:
    """Return an open session, with its agent equipped by the settings of its folder.

    A session that exists starts in the narrower of its mode and that of the settings. `reads_buffers` says that the editor can be asked
    for the text of files, with unsaved changes. Raises `BadInput` for a folder that does not exist
    or settings that cannot be read, `Locked` if another process has the session.
    """
    root, folders = _folder(request.cwd), tuple(_folder(name) for name in request.folders or ())
    settings = resolve(None if home.local_folder is None else home.local_folder / FILE_NAME, root, os.environ)
    settings.require_valid()
    for problem in settings.refused:
        notify(str(problem))
    cards = home.cards()
    recorded = recorded_choice(home, request.session)
    models = usable_models(cards, settings, all_of_them=bool(os.environ.get("PAL_SCRIPT")))
    coding = coding_settings(settings, recorded, folders=folders)
    coding = replace(coding, mcp=structs.replace(coding.mcp, given=client_servers(request.servers, root)))
    if reads_buffers:
        coding = replace(coding, hooks=EditorBuffers(client, lambda: agent.id).hooks())

    async def approve(asked: PermissionAsked) -> Approval:
        return await opened.approve(asked)

    agent = coding_agent(
        home,
        settings,
        coding,
        cards=cards,
        notify=notify,
        session=request.session,
        recorded=recorded,
        cwd=root,
        jobs=standard_jobs(settings.config.jobs, home),
        approve=approve,
        # The editor has its id, and may load it again before anything is said.
        drops_blank=False,
    )
    opened = EditorSession(agent, client, models)
    for notice in agent.parts.notices:
        notify(notice)
    return opened


def _folder(name: str) -> Path:
    """The real path of a folder that an editor names. Raises `BadInput` if it is none, or relative."""
    path = Path(name)
    if not path.is_absolute() or not path.is_dir():
        raise BadInput("there is no such folder; an editor names folders by their absolute path", where=name)
    return path.resolve()


def list_page(home: Home, cwd: str | None = None, cursor: str | None = None) -> ListSessionsResponse:
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


_INVALID_PARAMS: Final = -32602
_INTERNAL: Final = -32603
_NO_SESSION: Final = -32002


@contextmanager
def request_errors() -> Iterator[None]:
    """Raise errors of this library as errors of JSON-RPC, with their one line."""
    try:
        yield
    except PalimpsestError as error:
        code = _INVALID_PARAMS if isinstance(error, BadInput) else _INTERNAL
        raise RequestError(code, str(error), {"kind": error.kind}) from error


class EditorAgent(ProtocolAgent):
    """Answers the requests of one editor. `transport` tells when an answer was sent; only then the editor knows a new session."""

    def __init__(self, home: Home, transport: LineTransport | None = None) -> None:
        self._home = home
        self._client: Client | None = None
        self._reads_buffers = False
        self._sessions: dict[str, EditorSession] = {}
        self._new: dict[str, EditorSession] = {}
        self._announcing: set[asyncio.Task[None]] = set()
        if transport is not None:
            transport.sent = self._was_sent

    def on_connect(self, conn: Client) -> None:
        """Keep the connection to the editor."""
        self._client = conn

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **_: Any,
    ) -> InitializeResponse:
        """Return what this agent can do. Keys of models come from the environment and the settings, so nothing needs a login."""
        files = None if client_capabilities is None else client_capabilities.fs
        self._reads_buffers = files is not None and bool(files.read_text_file)
        sessions = SessionCapabilities(
            list=SessionListCapabilities(),
            resume=SessionResumeCapabilities(),
            close=SessionCloseCapabilities(),
            fork=SessionForkCapabilities(),
            additional_directories=SessionAdditionalDirectoriesCapabilities(),
        )
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True, sse=True),
                session_capabilities=sessions,
            ),
            agent_info=Implementation(name="palimpsest", title="Palimpsest", version=version("palimpsest-agent")),
            auth_methods=[],
        )

    async def authenticate(self, method_id: str, **_: Any) -> AuthenticateResponse | None:
        """Refuse: there is no method."""
        raise RequestError(_INVALID_PARAMS, "there is nothing to log in to; set the key of a model, see `pal doctor`")

    async def new_session(
        self, cwd: str, additional_directories: list[str] | None = None, mcp_servers: list[ClientServer] | None = None, **_: Any
    ) -> NewSessionResponse:
        """Start a session in a folder."""
        opened = self._open(OpeningRequest(cwd, additional_directories, mcp_servers))
        self._new[opened.agent.id] = opened
        return NewSessionResponse(session_id=opened.agent.id, modes=mode_state(opened.mode), config_options=opened.options())

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: list[ClientServer] | None = None,
        additional_directories: list[str] | None = None,
        **_: Any,
    ) -> LoadSessionResponse:
        """Open a session that exists and send its conversation before the answer."""
        opened = self._reopened(OpeningRequest(cwd, additional_directories, mcp_servers, session_id))
        with request_errors():
            await opened.replay()
        await opened.announce()
        return LoadSessionResponse(modes=mode_state(opened.mode), config_options=opened.options())

    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[ClientServer] | None = None,
        **_: Any,
    ) -> ResumeSessionResponse:
        """Open a session that exists, without its conversation."""
        opened = self._reopened(OpeningRequest(cwd, additional_directories, mcp_servers, session_id))
        await opened.show_pending()
        await opened.announce()
        return ResumeSessionResponse(modes=mode_state(opened.mode), config_options=opened.options())

    async def fork_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[ClientServer] | None = None,
        **_: Any,
    ) -> ForkSessionResponse:
        """Start a session that continues from the newest event of another one."""
        self._require(session_id)
        with request_errors():
            fork = fork_of(self._home, session_id)
        opened = self._open(OpeningRequest(cwd, additional_directories, mcp_servers, fork))
        self._new[opened.agent.id] = opened
        return ForkSessionResponse(session_id=opened.agent.id, modes=mode_state(opened.mode), config_options=opened.options())

    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None, **_: Any) -> ListSessionsResponse:
        """Return a page of the sessions of a folder, or of all, newest first."""
        with request_errors():
            return await asyncio.to_thread(list_page, self._home, cwd, cursor)

    async def close_session(self, session_id: str, **_: Any) -> CloseSessionResponse:
        """End the turn of a session and release it; it can be loaded again."""
        opened = self._session(session_id)
        del self._sessions[session_id]
        with request_errors():
            await opened.close(at_once=False)
        return CloseSessionResponse()

    async def prompt(self, session_id: str, prompt: list[PromptBlock], **_: Any) -> PromptResponse:
        """Run one turn."""
        opened = self._session(session_id)
        with request_errors():
            return await opened.prompt(prompt_parts(prompt, opened.agent.toolbox.workspace.root, self._home.blobs.put))

    async def cancel(self, session_id: str, **_: Any) -> None:
        """End the running turn; its prompt is answered with the stop reason `cancelled`."""
        if session_id in self._sessions:
            await self._sessions[session_id].cancel()

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> SetSessionModeResponse:
        """Change the mode at once, also in a turn."""
        opened = self._session(session_id)
        with request_errors():
            opened.change_mode(mode_id)
        await opened.tell_options()
        return SetSessionModeResponse()

    async def set_config_option(self, config_id: str, session_id: str, value: object, **_: Any) -> SetSessionConfigOptionResponse:
        """Change mode or model."""
        opened = self._session(session_id)
        with request_errors():
            if config_id == MODE:
                opened.change_mode(str(value))
            elif config_id == MODEL:
                await opened.choose_model(str(value))
            else:
                raise BadInput(f"there is no option {config_id!r}; the options are {MODE} and {MODEL}", where=session_id)
        await opened.tell_options()
        return SetSessionConfigOptionResponse(config_options=opened.options())

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Refuse: there are no extensions."""
        raise RequestError.method_not_found(f"_{method}")

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """Ignore it."""

    async def close(self) -> None:
        """End all sessions at once, because the editor is gone."""
        opened, self._sessions = tuple(self._sessions.values()), {}
        for task in self._announcing:
            task.cancel()
        # One that cannot be ended in order must not keep the others.
        for error in await asyncio.gather(*(each.close(at_once=True) for each in opened), return_exceptions=True):
            if isinstance(error, Exception):
                notify(str(error))

    def _session(self, session_id: str) -> EditorSession:
        found = self._sessions.get(session_id)
        if found is None:
            raise RequestError(_NO_SESSION, f"the session {session_id!r} is not open; load it first")
        return found

    def _require(self, session_id: str) -> None:
        try:
            require_session(self._home, session_id)
        except PalimpsestError as error:
            raise RequestError(_NO_SESSION, str(error), {"kind": error.kind}) from error

    def _reopened(self, request: OpeningRequest) -> EditorSession:
        known = self._sessions.get(request.session)
        if known is not None:
            return known
        self._require(request.session)
        return self._open(request)

    def _open(self, request: OpeningRequest) -> EditorSession:
        if self._client is None:
            raise RequestError(_INTERNAL, "there is no connection")
        with request_errors():
            opened = open_session(self._home, request, self._client, notify, reads_buffers=self._reads_buffers)
        self._sessions[opened.agent.id] = opened
        return opened

    def _was_sent(self, message: dict[str, Any]) -> None:
        result = message.get("result")
        session = self._new.pop(result["sessionId"], None) if isinstance(result, dict) and "sessionId" in result else None
        if session is not None:
            task = asyncio.ensure_future(self._announce(session))
            self._announcing.add(task)
            task.add_done_callback(self._announcing.discard)

    async def _announce(self, session: EditorSession) -> None:
        with suppress(ConnectionError, PalimpsestError):
            await session.announce()


def notify(line: str) -> None:
    """Print a line for the log of the editor, on standard error."""
    # The editor may have closed it.
    with suppress(OSError, ValueError):
        print(f"pal acp: {' '.join(line.split())}", file=sys.stderr, flush=True)


class _NoticeLog(logging.Handler):
    """Prints what the SDK logs as one line, without a traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record with the error that it is about."""
        error = record.exc_info[1] if record.exc_info else None
        notify(f"{record.getMessage()}{f' ({type(error).__name__}: {error})' if error is not None else ''}")


def serve(home: Home) -> None:
    """Serve one editor over standard input and output until it is gone. Raises `BadInput` if they are no pipes."""
    logging.basicConfig(level=logging.WARNING, handlers=[_NoticeLog()], force=True)
    run(_serve(home))


async def _serve(home: Home) -> None:
    reader, writer = await standard_streams()
    transport = LineTransport(reader, writer)
    agent = EditorAgent(home, transport)
    # What this SDK calls unstable is in the schema: resume, close and fork.
    connection = AgentSideConnection(agent, transport, listening=False, use_unstable_protocol=True)
    try:
        await connection.listen()
    finally:
        try:
            await agent.close()
        finally:
            await connection.close()
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        # The SDK ends its loop when it is cancelled, and a signal must end the process with its number.
        raise asyncio.CancelledError
